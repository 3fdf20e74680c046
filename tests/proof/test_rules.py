"""The checker must find what is broken, and only that."""

import pytest
from tests.builders.manifests import a_device, a_result
from tests.proof.builders import CLAIMS, Story, at, bound_pod, key, node_slice, ns_claim, seen, small_node

from dray.proof import History, HistoryFile, Listed, SeenEvent, check

SHARED = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "10Gi"}}}


def rules_of(story: Story, **options) -> list[str]:
    return [each.rule for each in check(story.history, **options).violations]


def share(device: str, share_id: str, memory: str) -> dict:
    return a_result(device, shareID=share_id, consumedCapacity={"memory": memory})


@pytest.mark.parametrize(
    ("device", "first", "second", "expected"),
    [
        pytest.param({}, a_result("d"), a_result("d"), ["device-given-twice"], id="whole-device-twice"),
        pytest.param({}, a_result("d"), a_result("e"), [], id="two-devices"),
        pytest.param({}, a_result("d"), a_result("d", adminAccess=True), [], id="admin-access-takes-nothing"),
        pytest.param(SHARED, share("d", "s1", "4Gi"), share("d", "s2", "6Gi"), [], id="shares-that-fit"),
        pytest.param(
            SHARED, share("d", "s1", "4Gi"), share("d", "s2", "7Gi"), ["capacity-overdrawn"], id="shares-that-do-not"
        ),
        pytest.param(
            SHARED, share("d", "s1", "1Gi"), share("d", "s1", "1Gi"), ["device-given-twice"], id="one-share-twice"
        ),
        pytest.param(
            {}, share("d", "s1", "1"), share("d", "s2", "1"), ["device-given-twice"], id="shares-of-a-whole-device"
        ),
        pytest.param(SHARED, a_result("d"), share("d", "s2", "1Gi"), ["device-given-twice"], id="whole-and-shared"),
    ],
)
def test_devices(device, first, second, expected):
    capacity = {"capacity": {"memory": {"value": "10Gi"}}}
    story = Story().shows(
        node_slice(a_device("d", **capacity | device), a_device("e")), ns_claim("one", first), ns_claim("two", second)
    )
    assert rules_of(story) == expected


def test_a_device_that_was_given_back_is_free():
    story = Story().shows(
        node_slice(a_device("d")), ns_claim("one", a_result("d")), ns_claim("one"), ns_claim("two", a_result("d"))
    )
    assert rules_of(story) == []


def test_a_device_whose_slice_is_gone_is_still_taken():
    published = node_slice(a_device("d"))
    story = Story().shows(published, ns_claim("one", a_result("d"))).deletes(published)
    assert rules_of(story.shows(ns_claim("two", a_result("d")))) == ["device-given-twice"]


@pytest.mark.parametrize(("size", "expected"), [("2", []), ("1", ["counter-overdrawn"])])
def test_counters(size, expected):
    draws = {"consumesCounters": [{"counterSet": "set", "counters": {"slices": {"value": "1"}}}]}
    published = node_slice(a_device("d", **draws), a_device("e", **draws), counters={"slices": size})
    story = Story().shows(published, ns_claim("one", a_result("d")), ns_claim("two", a_result("e")))
    assert rules_of(story) == expected


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([bound_pod("a", cpu="2"), bound_pod("b", cpu="2")], [], id="full"),
        pytest.param([bound_pod("a", cpu="2"), bound_pod("b", cpu="3")], ["ledger-overdrawn"], id="too-much"),
        pytest.param(
            [bound_pod("a", cpu="2"), bound_pod("b", cpu="3", started=False)], [], id="bound-but-not-taken-in"
        ),
        pytest.param(
            [bound_pod("a", cpu="2", phase="Failed"), bound_pod("b", cpu="3")], [], id="finished-pods-count-nothing"
        ),
    ],
)
def test_the_ledger(pods, expected):
    assert rules_of(Story().shows(small_node("4"), *pods)) == expected


def test_with_one_scheduler_binding_must_fit_too():
    story = Story().shows(small_node("4"), bound_pod("a", cpu="2"), bound_pod("b", cpu="3", started=False))
    assert rules_of(story, bound_must_fit=True) == ["bound-over-allocatable"]
    assert check(story.history).overbound == 1


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        pytest.param(ns_claim("c", a_result("d"), reserved_for=("p",)), [], id="allocated-and-reserved"),
        pytest.param(ns_claim("c", a_result("d")), ["running-without-claim"], id="not-reserved"),
        pytest.param(
            ns_claim("c", a_result("d"), reserved_for=("q",)), ["running-without-claim"], id="for-another-pod"
        ),
        pytest.param(ns_claim("c"), ["running-without-claim"], id="not-allocated"),
    ],
)
def test_running_needs_its_claims(claim, expected):
    assert rules_of(Story().shows(claim, bound_pod("p", claims=("c",), phase="Running"))) == expected


def test_running_without_the_claim_object():
    assert rules_of(Story().shows(bound_pod("p", claims=("c",), phase="Running"))) == ["running-without-claim"]


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        pytest.param([], ["running-without-claim"], id="never-made"),
        pytest.param([{"name": "g"}], [], id="needs-none"),
        pytest.param([{"name": "g", "resourceClaimName": "c"}], [], id="made"),
        pytest.param([{"name": "h", "resourceClaimName": "c"}], ["running-without-claim"], id="another-was-made"),
    ],
)
def test_running_needs_the_claims_of_its_templates(statuses, expected):
    pod = bound_pod("p", phase="Running")
    pod["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "t"}]
    pod["status"]["resourceClaimStatuses"] = statuses
    assert rules_of(Story().shows(ns_claim("c", a_result("d"), reserved_for=("p",)), pod)) == expected


IN_USE = ns_claim("c", a_result("d"), reserved_for=("p",))


@pytest.mark.parametrize(
    ("claims", "later", "expected"),
    [
        pytest.param([at(IN_USE, 3)], [], [], id="has-it"),
        pytest.param([at(ns_claim("c"), 3)], [], ["running-without-claim"], id="lacks-it"),
        pytest.param([], [("ADDED", IN_USE, 6)], [], id="made-between-the-lists"),
        pytest.param([], [("ADDED", IN_USE, 8)], ["running-without-claim"], id="made-afterwards"),
    ],
)
def test_what_ran_before_the_history_began_needs_its_claims_too(claims, later, expected):
    pod = at(bound_pod("p", claims=("c",), phase="Running"), 6)
    events = [SeenEvent("a", kind, key(CLAIMS, "c"), revision, 0.0, at(it, revision)) for kind, it, revision in later]
    records = [Listed("a", CLAIMS, 5, 0.0, claims), Listed("a", "pods", 7, 0.0, [pod]), *events]
    assert [each.rule for each in check(History(records)).violations] == expected


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_claim_in_use_is_not_taken_away(phase):
    mine = ns_claim("c", a_result("d"), reserved_for=("p",))
    story = Story().shows(mine, bound_pod("p", claims=("c",), phase=phase), ns_claim("c"))
    assert "deallocated-in-use" in rules_of(story)
    story = Story().shows(
        mine, bound_pod("p", claims=("c",), phase=phase), ns_claim("c", a_result("e"), reserved_for=("p",))
    )
    assert "deallocated-in-use" in rules_of(story)


@pytest.mark.parametrize("end", ["finished", "deleted", "unscheduled"])
def test_a_claim_is_given_back_when_its_pod_is_done(end):
    mine = ns_claim("c", a_result("d"), reserved_for=("p",))
    pod = bound_pod("p", claims=("c",), node="" if end == "unscheduled" else "n1")
    story = Story().shows(mine, pod)
    if end == "finished":
        story.shows(bound_pod("p", claims=("c",), phase="Succeeded"))
    elif end == "deleted":
        story.deletes(pod)
    assert rules_of(story.shows(ns_claim("c"))) == []


def test_a_history_that_is_written_down_at_once_is_the_same(tmp_path):
    """Two streams saw the same state: it is there once in memory, and still of both."""
    records = [seen(stream, "ADDED", "x", 3, data={"n": "1"}) for stream in ("a", "b")]
    records.append(seen("c", "ADDED", "x", 3, data={"n": "2"}))
    file = HistoryFile(tmp_path / "history")
    for record in records:
        file.add(record)
    file.close()
    found = History.load(tmp_path / "history").records
    assert found == records
    assert found[0].document is found[1].document


def test_a_history_survives_its_file(tmp_path):
    story = Story().shows(node_slice(a_device("d")), ns_claim("one", a_result("d")), ns_claim("two", a_result("d")))
    story.history.save(tmp_path / "history")
    again = check(History.load(tmp_path / "history"))
    assert again == check(story.history)
    assert not again.is_clean
    assert "device-given-twice: revision 3: gpu.example.com/n1/d: held by claims ns/one, ns/two" in map(
        str, again.violations
    )
