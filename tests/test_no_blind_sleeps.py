"""Tests wait for something, they do not sleep: `tests/waiting.py` has the only pauses."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
# Where time itself is part of the case, with the number of sleeps.
TIME_IS_THE_CASE = {
    "waiting.py": 3,
    # A peer that is slow on purpose.
    "kubelet/scripted_driver.py": 2,
    "http/test_connection.py": 3,  # one slow answer; two real timeouts of sockets
    "faults/test_node_restarts.py": 1,
    "store/test_disk_commit.py": 1,
    "client/test_contract.py": 2,
    # Faults and load at random moments.
    "faults/weather.py": 2,
    "faults/test_weather.py": 1,
    "faults/small_cluster.py": 1,
    "security/test_costly_requests.py": 1,
    # A signal at any moment of the start.
    "cli/test_up.py": 1,
    # Where a process runs is looked at again and again for a while.
    "peer/test_cpus_of_containers.py": 1,
    # Real timers and recorded pauses.
    "apiserver/test_turns.py": 1,
    "apiserver/exchanges.py": 2,
}


def sleeps(source: str) -> Iterator[int]:
    """The lines of calls of `sleep` with another argument than 0, which only gives way to other tasks."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "sleep":
            continue
        is_module = isinstance(node.func.value, ast.Name) and node.func.value.id in ("asyncio", "time")
        is_turn = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
        if is_module and not is_turn:
            yield node.lineno


def test_no_test_sleeps() -> None:
    found = Counter[str]()
    for path in TESTS.rglob("*.py"):
        name = path.relative_to(TESTS).as_posix()
        if not name.startswith("torture/"):  # Those disturb a cluster at random moments for minutes.
            found[name] += sum(1 for _ in sleeps(path.read_text()))
    assert {name: count for name, count in found.items() if count} == TIME_IS_THE_CASE


def test_a_sleep_is_found() -> None:
    assert list(sleeps("import time\ntime.sleep(1)\nawait asyncio.sleep(0)\nawait asyncio.sleep(x)")) == [2, 4]
