import pytest

from dray.api import names
from dray.api.semver import Semver, SemverError, is_semver


@pytest.mark.parametrize(
    ("problems", "name", "expected"),
    [
        (names.label_problems, "a-1", ()),
        (names.label_problems, "a.b", ("must not contain dots",)),
        (names.label_problems, "A", (names.LABEL_RULE,)),
        (names.label_problems, "", (names.LABEL_RULE,)),
        (names.label_problems, "a" * 64, ("must be no more than 63 bytes",)),
        (names.label_problems, "a\n", (names.LABEL_RULE,)),
        (names.subdomain_problems, "a.b-c.1", ()),
        (names.subdomain_problems, "a..b", (names.SUBDOMAIN_RULE,)),
        (names.subdomain_problems, "a" * 254, ("must be no more than 253 characters",)),
        (names.caseless_subdomain_problems, "GPU.example.com", ()),
        (names.qualified_name_problems, "example.com/Ready_1", ()),
        (names.qualified_name_problems, "", ("name part must be non-empty", f"name part {names.QUALIFIED_PART_RULE}")),
        (names.qualified_name_problems, "/x", ("prefix part must be non-empty",)),
        (names.qualified_name_problems, "a/b/c", (names.QUALIFIED_NAME_RULE,)),
        (names.qualified_name_problems, "A/b", (f"prefix part {names.SUBDOMAIN_RULE}",)),
        (names.label_value_problems, "", ()),
        (names.label_value_problems, "-x", (names.LABEL_VALUE_RULE,)),
        (names.c_identifier_problems, "_a1", ()),
        (names.c_identifier_problems, "1a", (names.C_IDENTIFIER_RULE,)),
    ],
)
def test_name_rules(problems, name, expected):
    assert problems(name) == expected


def test_long_names_are_judged_but_not_remembered():
    assert names.label_problems("a" * 1_000_000) == ("must be no more than 63 bytes",)


def test_lengths_are_in_bytes():
    assert names.byte_length("é") == 2
    assert names.byte_length("\ud800") == 3


@pytest.mark.parametrize("text", ["1.0.0", "0.0.0-alpha.1+build.7", "1.2.3----R-S.12", "99999999999999999999.0.0"])
def test_valid_versions(text):
    assert is_semver(text)


@pytest.mark.parametrize("text", ["", "1", "1.0", "v1.0.0", "01.0.0", "1.0.0-", "1.0.0-01", "1.0.0+", " 1.0.0"])
def test_invalid_versions(text):
    assert not is_semver(text)
    with pytest.raises(SemverError):
        Semver.parse(text)


def test_versions_sort_as_the_standard_says():
    text = "1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1 1.0.0 1.0.1 1.10.0"
    ordered = text.split()
    assert sorted(map(Semver.parse, reversed(ordered))) == [Semver.parse(text) for text in ordered]
    assert Semver.parse("1.0.0+a") == Semver.parse("1.0.0+b")
    assert str(Semver.parse("1.2.3-x.1+y")) == "1.2.3-x.1+y"
