"""A cluster that is added to a kubeconfig file, and taken out again, leaves everything else in the file alone."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dray import kubeconfig_file
from dray.apiserver.security.credentials import kubeconfig_text
from dray.client.kubeconfig import load_connection
from dray.kubeconfig_file import (
    ClusterEntry,
    KubeconfigError,
    add_cluster,
    check_cluster,
    remove_cluster,
    with_cluster,
    without_cluster,
)
from tests.kubectl import KUBECTL, Kubectl

OURS = ClusterEntry.of("dray", kubeconfig_text("https://127.0.0.1:7001", b"ca", "admin", token="ours"))
# With the traps of YAML: a name that is no boolean, a text that is no number, date or time, and anchors.
OTHERS = """\
# our clusters, do not lose
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters:
- name: prod
  cluster: &prod
    server: https://prod:6443
    certificate-authority: certs/prod.crt
- {name: no, cluster: {server: "https://norway:6443"}}
users:
- name: alice
  user:
    auth-provider:
      name: old
      config: {expiry: 2026-01-02T03:04:05Z, access-token: 012, pin: 12:30}
- name: bob
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: get-token, args: [--for, "bob smith", ""], env: }
contexts:
- context: {cluster: prod, user: alice, namespace: ml}
  name: prod
- {name: twin, context: {cluster: no, user: bob}}
current-context: prod
extensions:
- {name: theirs, extension: {kept: "yes", as: *prod}}
"""


class AsWritten(yaml.SafeLoader):
    """Every scalar is the text that stands there."""


AsWritten.yaml_implicit_resolvers = {
    "n": [("tag:yaml.org,2002:null", re.compile("null"))],
    "": [("tag:yaml.org,2002:null", re.compile("$"))],
}


def as_written(text: str) -> Any:
    return yaml.load(text, AsWritten)


def names(config: dict[str, Any], section: str) -> list[str]:
    return [row["name"] for row in config[section]]


def test_other_entries_stay_as_they_are_written_and_ours_is_current() -> None:
    before, merged = as_written(OTHERS), as_written(with_cluster(OTHERS, OURS))
    assert merged.pop("current-context") == "dray"
    for section in ("clusters", "users", "contexts"):
        assert merged[section].pop()["name"] == "dray"
    before.pop("current-context")
    assert merged == before


def test_adding_and_removing_leaves_everything_but_the_current_context() -> None:
    text = without_cluster(with_cluster(OTHERS, OURS), OURS)
    assert text is not None
    assert as_written(text) == {**as_written(OTHERS), "current-context": ""}


def test_a_current_context_that_was_changed_meanwhile_stays() -> None:
    text = with_cluster(OTHERS, OURS).replace("current-context: dray", "current-context: twin")
    assert as_written(without_cluster(text, OURS) or "")["current-context"] == "twin"


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.dictionaries(
            st.text(min_size=1, max_size=8), st.text(max_size=12) | st.integers() | st.booleans(), max_size=4
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_any_other_clusters_stay(clusters: list[dict[str, Any]], is_json_like: bool) -> None:
    config = {"kind": "Config", "clusters": [{"name": f"c{n}", "cluster": each} for n, each in enumerate(clusters)]}
    text = yaml.safe_dump(config, default_flow_style=is_json_like)
    merged = with_cluster(text, OURS)
    assert yaml.safe_load(merged)["clusters"][:-1] == config["clusters"]
    after = without_cluster(merged, OURS)
    assert (yaml.safe_load(after)["clusters"] if after else []) == config["clusters"]


def test_a_second_start_replaces_its_own_entries() -> None:
    again = ClusterEntry.of("dray", kubeconfig_text("https://127.0.0.1:7002", b"ca", "admin", token="new"))
    merged = with_cluster(with_cluster(OTHERS, OURS), again)
    config = yaml.safe_load(merged)
    assert [names(config, each).count("dray") for each in ("clusters", "users", "contexts")] == [1, 1, 1]
    assert "7002" in merged
    assert "7001" not in merged
    # The first one ends later and finds another cluster under its name.
    assert without_cluster(merged, OURS) == merged


@pytest.mark.parametrize(
    "theirs",
    [
        "clusters: [{name: dray, cluster: {server: 'https://prod:6443'}}]",
        "users: [{name: dray, user: {token: secret}}]",
        "contexts: [{name: dray, context: {cluster: prod}}]",
    ],
)
def test_an_entry_of_our_name_that_we_did_not_write_is_refused(tmp_path: Path, theirs: str) -> None:
    file = tmp_path / "config"
    file.write_text(theirs)
    for attempt in (lambda: add_cluster(file, OURS), lambda: check_cluster(file, "dray")):
        with pytest.raises(KubeconfigError, match="choose another --name"):
            attempt()
    assert file.read_text() == theirs
    remove_cluster(file, OURS)
    assert file.read_text() == theirs


@pytest.mark.parametrize(
    "text",
    [
        "- a list",
        "kind: Pod",
        "contexts: [1]",
        "clusters: {a: b}",
        "users: [{user: {}}]",
        "{",
        "just words",
        "a: b\n---\nc: d",
        "kind: Config\n\tclusters: []",
        "\x00",
        "[" * 5000,
    ],
)
def test_what_is_no_kubeconfig_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(KubeconfigError, match="not a kubeconfig"):
        add_cluster(file, OURS)
    assert file.read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == ["config"]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KubeconfigError, match="no text"):
        add_cluster(file, OURS)
    assert file.read_bytes() == b"\xff\xfe\x00"


@pytest.mark.parametrize("text", [None, "", "\n", "# nothing yet\n", "apiVersion: v1\nkind: Config\nclusters: null\n"])
def test_a_file_without_clusters_gets_ours_and_is_gone_afterwards(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "deep" / "config"
    if text is not None:
        file.parent.mkdir()
        file.write_text(text)
        file.chmod(0o644)
    add_cluster(file, OURS)
    assert load_connection(file).server == "https://127.0.0.1:7001"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    remove_cluster(file, OURS)
    assert not file.exists()
    remove_cluster(file, OURS)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles", tmp_path / "config"
    real.write_text(OTHERS)
    link.symlink_to(real)
    add_cluster(link, OURS)
    assert link.is_symlink()
    assert "dray" in names(yaml.safe_load(real.read_text()), "clusters")


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config"
    file.write_text(OTHERS)

    def crash(*paths: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="the disk is gone"):
        add_cluster(file, OURS)
    assert file.read_text() == OTHERS
    assert [each.name for each in tmp_path.iterdir()] == ["config"]


def test_many_at_once_lose_nothing(tmp_path: Path) -> None:
    """Processes that add their cluster and half of which take it out again, all at the same time."""
    file = tmp_path / "config"
    file.write_text(OTHERS)
    program = (
        "import sys; from pathlib import Path\n"
        "from dray import kubeconfig_file\n"
        "from dray.kubeconfig_file import ClusterEntry, add_cluster, remove_cluster\n"
        "kubeconfig_file.LOCK_WAIT_S = 100.0\n"  # on a busy machine somebody else may be faster each time
        "for number in range(10):\n"
        "    entry = ClusterEntry(f'dray-{sys.argv[2]}-{number}', {'server': f'https://h:{number}'}, {})\n"
        "    add_cluster(Path(sys.argv[1]), entry)\n"
        "    if number % 2: remove_cluster(Path(sys.argv[1]), entry)\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", program, str(file), str(number)]) for number in range(4)]
    assert [each.wait(110) for each in started] == [0] * 4
    kept = [f"dray-{process}-{number}" for process in range(4) for number in range(0, 10, 2)]
    config = yaml.safe_load(file.read_text())
    assert sorted(names(config, "clusters")[2:]) == sorted(kept)
    assert as_written(file.read_text())["users"][:2] == as_written(OTHERS)["users"]
    assert [each.name for each in tmp_path.iterdir()] == ["config"]


def test_a_lock_that_another_program_holds_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfig_file, "LOCK_WAIT_S", 0.1)
    (tmp_path / "config.lock").touch()
    with pytest.raises(KubeconfigError, match=r"remove .*config\.lock"):
        add_cluster(tmp_path / "config", OURS)
    assert (tmp_path / "config.lock").exists()
    assert not (tmp_path / "config").exists()


def test_the_lock_of_a_program_that_was_killed_is_removed(tmp_path: Path) -> None:
    lock = tmp_path / "config.lock"
    lock.touch()
    os.utime(lock, (1, 1))
    add_cluster(tmp_path / "config", OURS)
    assert (tmp_path / "config").exists()
    assert not lock.exists()


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on the PATH")
def test_kubectl_reads_changes_and_keeps_our_entries(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("kind: Config\nclusters: [{name: prod, cluster: {server: 'https://prod:6443'}}]\n")
    add_cluster(file, OURS)
    kubectl = Kubectl(file, tmp_path)
    kubectl.run("config", "set-context", "--current", "--namespace", "ml")
    assert kubectl.run("config", "current-context").strip() == "dray"
    assert load_connection(file).namespace == "ml"
    remove_cluster(file, OURS)
    config = yaml.safe_load(file.read_text())
    assert (names(config, "clusters"), config["users"], config["contexts"]) == (["prod"], [], [])
