"""Which version of a claim the scheduler goes by: the one that the watch shows, or its own write."""

from msgspec.structs import replace
from tests.builders.objects import a_claim

from dray.scheduler.devices import AssumedClaims


def at_revision(revision, uid="uid-1"):
    claim = a_claim("gpu")
    return replace(claim, metadata=replace(claim.metadata, uid=uid, resource_version=str(revision)))


class Changes(list):
    def __call__(self, old, new):
        self.append((old and old.metadata.resource_version, new and new.metadata.resource_version))


def known_claims():
    told = Changes()
    return AssumedClaims(told), told


def test_the_watch_is_ignored_until_it_shows_what_we_wrote():
    claims, told = known_claims()
    claims.watched(at_revision(3))
    claims.wrote(at_revision(7))
    claims.watched(at_revision(5))
    assert claims.get("default", "gpu").metadata.resource_version == "7"
    claims.watched(at_revision(8))
    assert claims.get("default", "gpu").metadata.resource_version == "8"
    assert told == [(None, "3"), ("3", "7"), ("7", "8")]


def test_what_the_watch_shows_of_our_write_takes_its_place_and_nobody_is_told_again():
    claims, told = known_claims()
    claims.wrote(at_revision(7))
    shown = at_revision(7)
    claims.watched(shown)
    assert claims.get("default", "gpu") is shown
    assert told == [(None, "7")]


def test_an_answer_that_comes_after_the_watch_changes_nothing():
    claims, told = known_claims()
    shown = at_revision(7)
    claims.watched(shown)
    claims.wrote(at_revision(7))
    assert claims.get("default", "gpu") is shown
    assert told == [(None, "7")]


def test_the_end_of_an_earlier_claim_leaves_the_next_of_that_name():
    claims, told = known_claims()
    claims.watched(at_revision(3))
    claims.wrote(at_revision(7, uid="uid-2"))
    claims.gone(at_revision(5))
    assert claims.get("default", "gpu").metadata.uid == "uid-2"
    claims.gone(at_revision(9, uid="uid-2"))
    assert claims.get("default", "gpu") is None
    assert len(claims) == 0
    assert told == [(None, "3"), ("3", None), (None, "7"), ("7", None)]


def test_another_claim_of_that_name_counts_as_a_deletion_and_a_creation():
    claims, told = known_claims()
    claims.watched(at_revision(3))
    claims.watched(at_revision(9, uid="uid-2"))
    assert told == [(None, "3"), ("3", None), (None, "9")]
