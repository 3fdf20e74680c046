"""A cluster that is added to a kubeconfig leaves the other clusters of the file alone."""

import pytest
import yaml

from dray.apiserver.security.credentials import kubeconfig_text
from dray.client.errors import KubeconfigError
from dray.client.kubeconfig import merge_kubeconfig

OURS = kubeconfig_text("https://127.0.0.1:7001", b"ca", "admin", token="ours")


def other(user: str = "alice") -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {"colors": True},
        "clusters": [{"name": "prod", "cluster": {"server": "https://prod:6443"}}],
        "users": [{"name": user, "user": {"token": "theirs"}}],
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": user}}],
        "current-context": "prod",
    }


def entries(config: dict, section: str) -> dict[str, dict]:
    return {row["name"]: row[section.removesuffix("s")] for row in config[section]}


def test_other_clusters_stay_and_ours_becomes_current():
    merged = yaml.safe_load(merge_kubeconfig(yaml.safe_dump(other()), OURS))
    assert entries(merged, "clusters")["prod"] == {"server": "https://prod:6443"}
    assert entries(merged, "clusters")["dray"]["server"] == "https://127.0.0.1:7001"
    assert entries(merged, "users")["alice"] == {"token": "theirs"}
    assert merged["preferences"] == {"colors": True}
    assert merged["current-context"] == "admin@dray"
    assert entries(merged, "contexts")["admin@dray"] == {"cluster": "dray", "user": "admin"}


def test_a_user_of_the_same_name_in_another_cluster_keeps_its_credentials():
    merged = yaml.safe_load(merge_kubeconfig(yaml.safe_dump(other("admin")), OURS))
    assert entries(merged, "users") == {"admin": {"token": "theirs"}, "admin-dray": {"token": "ours"}}
    assert entries(merged, "contexts")["admin@dray"]["user"] == "admin-dray"


def test_a_second_start_replaces_its_own_entries():
    again = kubeconfig_text("https://127.0.0.1:7002", b"ca", "admin", token="new")
    for before in (OURS, merge_kubeconfig(yaml.safe_dump(other("admin")), OURS)):
        merged = yaml.safe_load(merge_kubeconfig(before, again))
        assert entries(merged, "clusters")["dray"]["server"] == "https://127.0.0.1:7002"
        assert [row["name"] for row in merged["clusters"]].count("dray") == 1
        assert "ours" not in str(merged)


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_file_gets_ours(text):
    assert merge_kubeconfig(text, OURS) == OURS


@pytest.mark.parametrize("text", ["- a list", "kind: Pod", "contexts: [1]", "{", "just words"])
def test_what_is_no_kubeconfig_is_refused(text):
    with pytest.raises(KubeconfigError):
        merge_kubeconfig(text, OURS)
