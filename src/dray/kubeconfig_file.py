"""Adds one cluster to a kubeconfig file and takes it out again; everything else in the file stays as it is written.

The file is changed as a tree of YAML nodes, so that the texts of other entries stay (`no`, `012`, dates, anchors); only comments
are lost. It is replaced atomically, readable by its owner only, under the lock file that kubectl and kind use.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dray.atomic_files import write_private

ABANDONED_AFTER_S = 30.0
LOCK_WAIT_S = 10.0
LOCK_POLL_S = 0.02
SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
# Stands in each entry that this module writes. An entry of the same name without it belongs to somebody else.
MARK = {"name": "dray", "extension": {"provider": "dray"}}
_EMPTY = "apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts: []\n"


class KubeconfigError(Exception):
    """The kubeconfig cannot be used; the message names what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """A cluster and its user under one name, which is also the name of their context."""

    name: str
    cluster: dict[str, Any]
    user: dict[str, Any]

    @classmethod
    def of(cls, name: str, kubeconfig: str) -> ClusterEntry:
        """The only cluster and the only user of a kubeconfig."""
        config = yaml.safe_load(kubeconfig)
        (cluster,), (user,) = config["clusters"], config["users"]
        return cls(name, cluster["cluster"], user["user"])

    def rows(self) -> dict[str, dict[str, Any]]:
        """The entry of each section."""
        bodies = {"clusters": self.cluster, "users": self.user, "contexts": {"cluster": self.name, "user": self.name}}
        return {
            section: {"name": self.name, SECTIONS[section]: {**body, "extensions": [MARK]}}
            for section, body in bodies.items()
        }


def add_cluster(path: Path, entry: ClusterEntry) -> None:
    """Adds the cluster and makes its context the current one. Raises `KubeconfigError` and changes nothing where it cannot."""
    with _locked(path):
        _write(path, with_cluster(_text(path), entry))


def remove_cluster(path: Path, entry: ClusterEntry) -> None:
    """Removes the cluster if it is still this one; a file that holds nothing then is removed, too."""
    if not path.exists():
        return
    with _locked(path):
        before = _text(path)
        after = without_cluster(before, entry)
        if after is None:
            _target(path).unlink(missing_ok=True)
        elif after != before:
            _write(path, after)


def check_cluster(path: Path, name: str) -> None:
    """Raises `KubeconfigError` where `add_cluster` would refuse the file, or that name in it."""
    with_cluster(_text(path), ClusterEntry(name, {}, {}))


def with_cluster(text: str, entry: ClusterEntry) -> str:
    config = _compose(text) or _compose(_EMPTY)
    assert config is not None
    for section, row in entry.rows().items():
        rows = _rows(config, section)
        same = next((each for each in rows if _name(each, section) == entry.name), None)
        if same is not None and not _is_marked(same, section):
            raise KubeconfigError(
                f"it has a {SECTIONS[section]} named {entry.name} that another program wrote; choose another --name"
            )
        _set_rows(config, section, [*(each for each in rows if each is not same), _node_of(row)])
    _set(config, "current-context", _node_of(entry.name))
    return _serialized(config)


def without_cluster(text: str, entry: ClusterEntry) -> str | None:
    """The text itself if the cluster of that name is another one by now; None if nothing is left."""
    config = _compose(text)
    if config is None or not _is_this_cluster(config, entry):
        return text
    for section in SECTIONS:
        rows = _rows(config, section)
        _set_rows(config, section, [each for each in rows if not _is_ours(each, section, entry.name)])
    if _plain(_get(config, "current-context")) == entry.name:
        _set(config, "current-context", _node_of(""))
    return None if _is_empty(config) else _serialized(config)


def _is_this_cluster(config: yaml.MappingNode, entry: ClusterEntry) -> bool:
    """Whether server and authority are those of the entry: another cluster may have taken the name since."""
    for row in _rows(config, "clusters"):
        if _is_ours(row, "clusters", entry.name):
            found = _plain(_get(row, "cluster"))
            return isinstance(found, dict) and all(found.get(key) == value for key, value in entry.cluster.items())
    return False


def _is_ours(row: yaml.MappingNode, section: str, name: str) -> bool:
    return _name(row, section) == name and _is_marked(row, section)


def _is_marked(row: yaml.MappingNode, section: str) -> bool:
    body = _get(row, SECTIONS[section])
    extensions = _get(body, "extensions") if isinstance(body, yaml.MappingNode) else None
    return MARK in (_plain(extensions) or ())


def _is_empty(config: yaml.MappingNode) -> bool:
    """Whether nobody would miss the file."""
    return all(
        key.value in ("apiVersion", "kind") or _is_null(value) or not _plain(value) for key, value in config.value
    )


# --- nodes


class _Loader(yaml.SafeLoader):
    """Takes every scalar for the text that stands there: what `no` or `12:30` means is the reader's affair."""

    yaml_implicit_resolvers = {}

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        # A value that is left out can stand in an indented list of fields, but not between braces.
        if node.style is None and not node.value:
            node.value = "null"
        return node


class _Dumper(yaml.SafeDumper):
    """Writes them so again."""

    yaml_implicit_resolvers = {}


def _compose(text: str) -> yaml.MappingNode | None:
    """The tree of a kubeconfig; None for a text without content."""
    try:
        config = yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError) as error:
        at = getattr(error, "problem_mark", None)
        where = f" in line {at.line + 1}" if at is not None else ""
        raise KubeconfigError(f"not a kubeconfig: no YAML{where}") from None
    if config is None or _is_null(config):
        return None
    if not isinstance(config, yaml.MappingNode) or _plain(_get(config, "kind")) not in (None, "Config"):
        raise KubeconfigError("not a kubeconfig")
    for section in SECTIONS:
        for row in _rows(config, section):
            _name(row, section)
    return config


def _serialized(config: yaml.MappingNode) -> str:
    return str(yaml.serialize(config, Dumper=_Dumper, allow_unicode=True, width=float("inf")))


def _node_of(value: Any) -> yaml.Node:
    node = yaml.compose(yaml.safe_dump(value, sort_keys=False), Loader=_Loader)
    assert isinstance(node, yaml.Node)  # `safe_dump` writes a document for every value, also for None.
    return node


def _plain(node: yaml.Node | None) -> Any:
    """What a node holds; all its scalars are texts."""
    if node is None:
        return None
    try:
        return _Loader("").construct_document(node)
    except yaml.YAMLError as error:
        raise KubeconfigError(f"not a kubeconfig: {error}") from None


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value.lower() in ("null", "~")


def _get(mapping: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for name, value in mapping.value if name.value == key), None)


def _set(mapping: yaml.MappingNode, key: str, value: yaml.Node) -> None:
    kept = [(name, value if name.value == key else each) for name, each in mapping.value]
    if _get(mapping, key) is None:
        kept.append((_node_of(key), value))
    mapping.value = kept


def _rows(config: yaml.MappingNode, section: str) -> list[yaml.MappingNode]:
    found = _get(config, section)
    if found is None or _is_null(found):
        return []
    if not isinstance(found, yaml.SequenceNode) or not all(isinstance(row, yaml.MappingNode) for row in found.value):
        raise KubeconfigError(f"not a kubeconfig: {section} is no list of entries")
    return list(found.value)


def _set_rows(config: yaml.MappingNode, section: str, rows: list[Any]) -> None:
    # Block style: an entry in block style cannot stand inside of `clusters: []`.
    _set(config, section, yaml.SequenceNode("tag:yaml.org,2002:seq", rows, flow_style=False if rows else None))


def _name(row: yaml.MappingNode, section: str) -> str:
    name = _get(row, "name")
    if not isinstance(name, yaml.ScalarNode):
        raise KubeconfigError(f"not a kubeconfig: an entry of {section} has no name")
    return str(name.value)


# --- the file


def _target(path: Path) -> Path:
    """The file behind a symbolic link, which stays one."""
    return Path(os.path.realpath(path))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise KubeconfigError("not a kubeconfig: no text") from None


def _write(path: Path, text: str) -> None:
    write_private(_target(path), text.encode())


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock that kubectl and kind respect: a file beside the kubeconfig that only one can create."""
    lock = path.with_name(f"{path.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            break
        except FileExistsError:
            if _is_abandoned(lock):
                lock.unlink(missing_ok=True)
            elif time.monotonic() > until:
                raise KubeconfigError(f"another program is changing it; if none is, remove {lock}") from None
            time.sleep(LOCK_POLL_S)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _is_abandoned(lock: Path) -> bool:
    """Whether the program that made the lock must have been killed: it is held for milliseconds, and nobody else would remove it."""
    with contextlib.suppress(OSError):
        return time.time() - lock.stat().st_mtime > ABANDONED_AFTER_S
    return False
