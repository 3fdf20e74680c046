"""Files and servers that the tools read: dumps of strange clusters, recordings, backups, and an etcd that answers anything."""

# ruff: noqa: PT017 - an answer and a refusal are both fine here

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import grpc
import msgspec
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from dray.cli.main import cli
from dray.cli.output import show_hidden_characters
from dray.clock import RealClock
from dray.proof.history import Listed, ObjectKey, SeenEvent, line_of
from dray.proto import etcd_pb2
from dray.store.backup import Backup, SqliteSource
from dray.store.errors import StoreError
from dray.store.etcd import EtcdStore
from dray.store.interface import Put
from dray.store.sqlite import SqliteStore
from dray.store.store_url import StoreAddress
from tests.fuzz.mutations import ANY_BYTES, almost, almost_text
from tests.fuzz.test_files import POD, SLICE, folder, fuzzed

__all__ = ["folder"]

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}},
    "spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'd.example.com'"}}]},
}
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "n", "uid": "u"},
    "spec": {
        "devices": {
            "requests": [
                {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
            ]
        }
    },
    "status": {
        "allocation": {
            "devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "d"}]}
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "x"}],
    },
}
CLUSTER = [NODE, CLASS, CLAIM, SLICE, POD]
COMMANDS = [
    ["doctor"], ["explain", "p", "-n", "n"], ["devices"], ["ledger"], ["top"], ["lint"], ["allocate", "--node", "n"],
]  # fmt: skip


def ends_in_words(arguments: list[str]) -> None:
    """A command answers or refuses: 0, 1 (no) or 2 (wrong use), no exception escapes, and nothing printed is obeyed by a terminal."""

    def program() -> None:
        show_hidden_characters()  # As it does when a person starts it.
        cli.main(arguments, prog_name="dray")

    done = CliRunner().invoke(click.Command("dray", callback=program))
    assert done.exception is None or isinstance(done.exception, SystemExit), (arguments, done.exc_info)
    assert done.exit_code in (0, 1, 2, 3), (done.exit_code, done.output)
    assert "\x1b" not in done.output
    assert done.output.strip() or done.exit_code == 0


@fuzzed
@example(
    content=b'apiVersion: v1\nkind: Node\nmetadata:\n  labels: {"\\e": false}\n  name: n\n', command=["explain", "p"]
)
@given(
    content=almost(CLUSTER).map(
        lambda found: yaml.safe_dump_all(found if isinstance(found, list) else [found]).encode()
    )
    | almost_text(CLUSTER, as_json=True),
    command=st.sampled_from(COMMANDS),
)
def test_dumps_of_strange_clusters(folder: Path, content: bytes, command: list[str]) -> None:
    path = folder / "cluster.yaml"
    path.write_bytes(content)
    ends_in_words([*command, "-f", str(path)])


# --- recordings


def recorded() -> list[Any]:
    resources = {
        "Node": "nodes",
        "ResourceClaim": "resourceclaims.resource.k8s.io",
        "ResourceSlice": "resourceslices.resource.k8s.io",
        "Pod": "pods",
    }
    records: list[Any] = []
    for number, document in enumerate([NODE, CLAIM, SLICE, POD], 10):
        resource = resources[str(document["kind"])]
        shown: dict[str, Any] = document | {"metadata": {**document["metadata"], "resourceVersion": str(number)}}  # type: ignore[dict-item]
        records.append(Listed("w", resource, number, 1.0, [shown]))
        later = shown | {"metadata": {**shown["metadata"], "resourceVersion": str(number + 10)}}
        key = ObjectKey(resource, shown["metadata"].get("namespace", ""), shown["metadata"]["name"])
        records.append(SeenEvent("w", "MODIFIED", key, number + 10, 2.0, later))
    return [msgspec.json.decode(line_of(each)) for each in records]


RECORDS = recorded()
ODD_REVISION = [{**RECORDS[0], "documents": [{"metadata": {"name": "n", "resourceVersion": "²"}}]}]


@fuzzed
@example(records=ODD_REVISION)
@example(records=[{**RECORDS[0], "documents": [{"metadata": {"name": "n", "resourceVersion": "1" * 5000}}]}])
@given(records=almost(RECORDS))
def test_recordings(folder: Path, records: Any) -> None:
    path = folder / "recording.ndjson"
    try:
        lines = [msgspec.json.encode(each) for each in (records if isinstance(records, list) else [records])]
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError):
        return
    path.write_bytes(b"\n".join(lines))
    ends_in_words(["proof", "-f", str(path)])


# --- backups


class GoodBackup(bytes):
    def __repr__(self) -> str:
        return "a good backup"


@pytest.fixture(scope="module")
def backup(folder: Path) -> bytes:
    async def make() -> None:
        store = SqliteStore(folder / "source.db")
        for number in range(5):
            await store.commit([Put(f"/registry/a/{number}", b"x" * number)])
        await store.close()
        with closing(Backup(folder / "good.backup")) as target:
            await target.copy(SqliteSource(folder / "source.db"), 1.0)
            target._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    asyncio.run(make())
    return GoodBackup((folder / "good.backup").read_bytes())


SQL_VALUES = st.sampled_from([None, -1, 0, 2**63 - 1, -(2**63), 1e308, "", "x", "²", b"\xff", float("inf")])


@fuzzed
@example(changes=[], spoiled=[(3523, b"\x1b")], arguments=["--list"])
@given(
    changes=st.lists(st.tuples(st.integers(0, 30), SQL_VALUES), max_size=3),
    spoiled=st.lists(st.tuples(st.integers(0, 60_000), st.binary(min_size=1, max_size=4)), max_size=3),
    arguments=st.sampled_from([["--list"], [], ["--revision", "3"], ["--time", "2026-01-01T00:00:00Z"]]),
)
def test_backups(
    folder: Path, backup: bytes, changes: list[tuple[int, Any]], spoiled: list[tuple[int, bytes]], arguments: list[str]
) -> None:
    path, target = folder / "some.backup", folder / "restored"
    for left in (*folder.glob("some.backup*"), *target.glob("*")):
        left.unlink(missing_ok=True)  # SQLite takes its own away when a connection is let go.
    data = backup
    for at, piece in spoiled:
        data = data[: at % len(data)] + piece + data[at % len(data) + len(piece) :]
    path.write_bytes(data)
    try:
        with closing(sqlite3.connect(path)) as connection:
            columns = list(columns_of(connection))
            for at, value in changes:
                table, column = columns[at % len(columns)]
                connection.execute(f'UPDATE "{table}" SET "{column}" = ?', (value,))
            connection.commit()
    except (sqlite3.Error, ZeroDivisionError, UnicodeDecodeError):
        pass
    place = [] if arguments == ["--list"] else ["--data", str(target)]
    ends_in_words(["restore", str(path), *arguments, *place])


def columns_of(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"):
        for row in connection.execute(f'PRAGMA table_info("{table}")'):
            yield table, row[1]


# --- etcd


class StrangeEtcd(grpc.GenericRpcHandler):
    """Answers every call with the bytes that it was given last."""

    def __init__(self) -> None:
        self.answers: list[bytes] = [b""]
        self._next = 0

    def service(self, handler_call_details: Any) -> Any:
        async def answer(request: Any, context: Any) -> bytes:
            self._next += 1
            return self.answers[self._next % len(self.answers)]

        async def stream(requests: Any, context: Any) -> Any:
            for each in self.answers:
                yield each

        if handler_call_details.method.endswith(("/Watch", "/LeaseKeepAlive")):
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(answer)


KV = {"key": b"/registry/a", "value": b"{}", "mod_revision": 5, "create_revision": 3, "version": 1}


@st.composite
def etcd_answers(draw: st.DrawFn) -> bytes:
    # No etcd counts further than that.
    numbers = st.sampled_from([0, 1, 5, -1, 2**62, -(2**63)])
    header = etcd_pb2.ResponseHeader(revision=draw(numbers))
    pairs = []
    for _ in range(draw(st.integers(0, 2))):
        pair = KV | {"key": draw(st.sampled_from([b"/registry/a", b"", b"\xff", b"/"])), "mod_revision": draw(numbers)}
        pairs.append(etcd_pb2.KeyValue(**pair))  # type: ignore[arg-type]
    found = etcd_pb2.RangeResponse(header=header, kvs=pairs, more=draw(st.booleans()), count=draw(numbers))
    inner = etcd_pb2.ResponseOp(response_range=found)
    events = [etcd_pb2.Event(kv=pair) for pair in pairs]
    made: Any = draw(
        st.sampled_from(
            [
                found,
                etcd_pb2.TxnResponse(header=header, succeeded=draw(st.booleans()), responses=[inner]),
                etcd_pb2.WatchResponse(header=header, created=draw(st.booleans()), events=events),
            ]
        )
    )
    data: bytes = made.SerializeToString()
    return data if draw(st.booleans()) else draw(ANY_BYTES)


@fuzzed
@given(answers=st.lists(etcd_answers(), min_size=1, max_size=3))
# A page that is empty and not the last one.
@example(answers=[b"\n\x00\x18\x01", b"\n\x00\x10\x01\x1a\x04\n\x02\n\x00", b"\n\x00"])
def test_answers_of_etcd(answers: list[bytes]) -> None:
    """The store gives what was asked for or says that it cannot; it never gives up with another exception, and does not hang."""

    async def run() -> None:
        strange = StrangeEtcd()
        strange.answers = answers
        server = grpc.aio.server(handlers=[strange])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        store = None
        try:
            async with asyncio.timeout(20):
                store = await EtcdStore.open(StoreAddress.parse(f"etcd://127.0.0.1:{port}"), RealClock())
                for call in (
                    store.get("/registry/a"),
                    store.list("/registry/"),
                    store.commit([Put("/registry/a", b"1")]),
                ):
                    try:
                        await call
                    except StoreError as problem:
                        assert str(problem)
        except StoreError as problem:
            assert str(problem)
        finally:
            if store is not None:
                await store.close()
            await server.stop(None)

    asyncio.run(run())
