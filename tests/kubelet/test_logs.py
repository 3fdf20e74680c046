"""Logs of containers: the asked-for part, and nothing outside the log directory."""

import asyncio
import os

import pytest

from dray.kubelet import log_files
from dray.kubelet.log_files import (
    LogRequest,
    LogTimesWriter,
    find_log,
    nanoseconds,
    read_log,
    read_times,
    remove_logs_of_deleted_pods,
    times_file,
)
from dray.kubelet.log_server import log_request


async def content(path, is_cri=False, **asked):
    return b"".join([chunk async for chunk in read_log(path, LogRequest(**asked), is_cri=is_cri)])


@pytest.mark.parametrize("chunk", [3, 7, 1 << 16])
@pytest.mark.parametrize("ending", ["\n", ""])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 9, 20])
async def test_the_last_lines(tmp_path, monkeypatch, chunk, ending, count):
    monkeypatch.setattr(log_files, "CHUNK", chunk)
    path = tmp_path / "0.log"
    lines = [f"line {i}" for i in range(9)]
    path.write_text("\n".join(lines) + ending)
    expected = "\n".join(lines[-count:]) + ending if count else ""
    assert (await content(path, tail_lines=count)).decode() == expected


async def test_a_limit_of_bytes(tmp_path):
    path = tmp_path / "0.log"
    path.write_text("0123456789")
    assert await content(path, limit_bytes=4) == b"0123"


async def test_following_sees_what_is_added(tmp_path):
    path = tmp_path / "0.log"
    path.write_text("a")
    stream = read_log(path, LogRequest(follow=True))
    assert await anext(stream) == b"a"
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    with path.open("a") as file:
        file.write("b")
    assert await waiting == b"b"
    await stream.aclose()


async def test_following_ends_with_the_container(tmp_path):
    path = tmp_path / "0.log"
    path.write_text("a")
    runs = iter([True, False])
    seen = []
    async for chunk in read_log(path, LogRequest(follow=True), lambda: next(runs)):
        seen.append(chunk)
        if chunk == b"a":
            path.write_text("ab")
    assert seen == [b"a", b"b"]


def test_the_newest_attempt_or_the_one_before(tmp_path):
    folder = tmp_path / "ns_p_uid" / "c"
    folder.mkdir(parents=True)
    for attempt in (0, 2, 10):
        (folder / f"{attempt}.log").touch()
    assert find_log(tmp_path, "ns", "p", "c", previous=False).name == "10.log"
    assert find_log(tmp_path, "ns", "p", "c", previous=True).name == "2.log"
    assert find_log(tmp_path, "ns", "p", "other", previous=False) is None


@pytest.mark.parametrize("container", ["..", "", "../../etc", "a/b"])
def test_no_name_leads_outside(tmp_path, container):
    (tmp_path / "ns_p_uid" / "c").mkdir(parents=True)
    assert find_log(tmp_path, "ns", "p", container, previous=False) is None


# --- times


START = nanoseconds("2026-01-01T00:00:00Z")


@pytest.fixture
def stamped(tmp_path):
    """Three lines, one second apart."""
    path = tmp_path / "0.log"
    path.write_text("one\ntwo\nthree\n")
    times_file(path).write_text(f"4 {START}\n8 {START + 10**9}\n14 {START + 2 * 10**9 + 5}\n")
    return path


async def test_lines_with_their_times(stamped):
    assert (await content(stamped, timestamps=True)).decode() == (
        "2026-01-01T00:00:00.000000000Z one\n2026-01-01T00:00:01.000000000Z two\n2026-01-01T00:00:02.000000005Z three\n"
    )
    assert await content(stamped, timestamps=True, tail_lines=1) == b"2026-01-01T00:00:02.000000005Z three\n"
    assert await content(stamped, timestamps=True, limit_bytes=10) == b"2026-01-01"


@pytest.mark.parametrize(("seconds", "expected"), [(-1, b"one\ntwo\nthree\n"), (1, b"two\nthree\n"), (9, b"")])
async def test_lines_since_a_moment(stamped, seconds, expected):
    assert await content(stamped, since_ns=START + seconds * 10**9) == expected


async def test_a_burst_of_lines_has_the_time_of_its_last(tmp_path):
    path = tmp_path / "0.log"
    path.write_text("a\nb\nc")
    times_file(path).write_text(f"5 {START}\n")
    expected = "".join(f"2026-01-01T00:00:00.000000000Z {each}" for each in ("a\n", "b\n", "c"))
    assert (await content(path, timestamps=True)).decode() == expected


async def test_times_are_noted_while_a_file_grows_and_after_a_restart(tmp_path):
    path = tmp_path / "0.log"
    path.write_text("a\n")
    os.utime(path, ns=(START, START))
    times = LogTimesWriter()
    times.follow(path)
    times.look_at(path)
    times.look_at(path)
    assert read_times(path) == [(2, START)]
    times.close()
    with path.open("a") as file:
        file.write("b\n")
    os.utime(path, ns=(START + 7, START + 7))
    again = LogTimesWriter()
    again.follow(path)
    again.unfollow(path)
    again.close()
    assert read_times(path) == [(2, START), (4, START + 7)]


CRI = b"""2026-01-01T00:00:00.5Z stdout F one
2026-01-01T00:00:01.000000001Z stderr P tw
2026-01-01T00:00:01.000000002+00:00 stderr F o
not a line of this format
2026-01-01T00:00:02Z stdout F:x three
"""


async def test_lines_of_a_cri_runtime_are_shown_without_their_heads(tmp_path):
    path = tmp_path / "0.log"
    path.write_bytes(CRI)
    assert await content(path, is_cri=True) == b"one\ntwo\nthree\n"
    assert await content(path, is_cri=True, since_ns=START + 2 * 10**9) == b"three\n"
    assert (await content(path, is_cri=True, timestamps=True)).decode() == (
        "2026-01-01T00:00:00.500000000Z one\n2026-01-01T00:00:01.000000001Z two\n2026-01-01T00:00:02.000000000Z three\n"
    )


def test_what_can_be_asked_for():
    query = {"tailLines": "3", "limitBytes": "9", "follow": "true", "timestamps": "true", "sinceSeconds": "2"}
    asked = log_request(query, START)
    assert asked == LogRequest(3, 9, follow=True, timestamps=True, since_ns=START - 2 * 10**9)
    assert log_request({"sinceTime": "2026-01-01T00:00:00Z"}, 0).since_ns == START


@pytest.mark.parametrize(
    "query",
    [{"tailLines": "-1"}, {"limitBytes": "0"}, {"sinceSeconds": "x"}, {"sinceTime": "yesterday"}, {"tailLines": ""}],
)
def test_what_makes_no_sense_is_refused(query):
    with pytest.raises(ValueError):
        log_request(query, START)


def test_output_goes_with_its_pod(tmp_path):
    for uid in ("old", "new"):
        (tmp_path / f"ns_p_{uid}" / "c").mkdir(parents=True)
    remove_logs_of_deleted_pods(tmp_path, {"new"})
    assert [each.name for each in tmp_path.iterdir()] == ["ns_p_new"]
    remove_logs_of_deleted_pods(tmp_path / "nowhere", set())


@pytest.mark.parametrize("asked", [{"since_ns": 2**62}, {"timestamps": True}, {}], ids=["since", "timestamps", "plain"])
async def test_others_have_their_turn_while_a_long_log_is_read(tmp_path, asked):
    path = tmp_path / "0.log"
    path.write_bytes(b"\n" * 4 * log_files.CHUNK)
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    async for _ in read_log(path, LogRequest(**asked)):
        pass
    beside.cancel()
    lines = 4 * log_files.CHUNK
    assert turns >= (lines // log_files.LINES_IN_A_TURN if asked else 4) // 2


async def test_the_last_of_very_many_empty_lines(tmp_path):
    path = tmp_path / "0.log"
    path.write_bytes(b"\n" * 2 * log_files.CHUNK + b"end\n")
    assert await content(path, tail_lines=2) == b"\nend\n"
