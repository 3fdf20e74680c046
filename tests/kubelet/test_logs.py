"""Logs of containers: the asked-for part, and nothing outside the log directory."""

import asyncio

import pytest

from dray.kubelet import logs
from dray.kubelet.logs import LogRequest, find_log, read_log


async def content(path, **asked):
    return b"".join([chunk async for chunk in read_log(path, LogRequest(**asked))])


@pytest.mark.parametrize("chunk", [3, 7, 1 << 16])
@pytest.mark.parametrize("ending", ["\n", ""])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 9, 20])
async def test_the_last_lines(tmp_path, monkeypatch, chunk, ending, count):
    monkeypatch.setattr(logs, "CHUNK", chunk)
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
