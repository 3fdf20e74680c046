"""Logs of containers that write more than one file may hold."""

import asyncio
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dray.clock import RealClock
from dray.kubelet import log_files
from dray.kubelet.log_files import LineTimes, LogRequest, LogTimesWriter, read_log, read_times, times_file
from dray.kubelet.runtime.log_writer import RotatingLog, full_files
from dray.kubelet.runtime.process import LogLimits, ProcessRuntime
from dray.kubelet.runtime.process_terminals import HeldTerminal
from tests.effort import counted_steps
from tests.kubelet.test_process_runtime import POD, a_spec, start
from tests.waiting import eventually, let_others_run


async def content(path, is_written=lambda: False, **asked):
    return b"".join([chunk async for chunk in read_log(path, LogRequest(**asked), is_written)])


def all_files(path):
    return [*map(Path, full_files(str(path))), path]


def names(folder):
    return sorted(each.name for each in folder.iterdir())


# --- files


def test_a_full_file_gets_a_number_and_the_oldest_goes(tmp_path):
    log = RotatingLog(str(tmp_path / "0.log"), 8, 3)
    for number in range(6):
        log.write(b"line %d\n" % number)
    assert names(tmp_path) == ["0.log", "0.log.4", "0.log.5"]
    assert [(tmp_path / each).read_bytes() for each in names(tmp_path)] == [b"line 5\n", b"line 3\n", b"line 4\n"]


@pytest.mark.parametrize("piece", [1, 3, 10, 100])
def test_lines_stay_whole_and_nothing_is_lost(tmp_path, piece):
    written = b"".join(b"%d\n" % 7**number for number in range(20))
    log = RotatingLog(str(tmp_path / "0.log"), 40, 100)
    for begin in range(0, len(written), piece):
        log.write(written[begin : begin + piece])
    files = all_files(tmp_path / "0.log")
    parts = [each.read_bytes() for each in files]
    assert b"".join(parts) == written
    assert len(parts) >= 5
    assert all(len(part) <= 40 for part in parts)
    if piece > 20:
        assert all(part.endswith(b"\n") for part in parts)


def test_a_line_that_is_longer_than_a_file_is_cut(tmp_path):
    log = RotatingLog(str(tmp_path / "0.log"), 4, 100)
    log.write(b"a\n0123456789\nb\n")
    files = all_files(tmp_path / "0.log")
    assert [each.read_bytes() for each in files] == [b"a\n", b"0123", b"4567", b"89\n", b"b\n"]


def test_a_negative_size_is_no_limit(tmp_path):
    RotatingLog(str(tmp_path / "0.log"), -1, 2).write(b"x" * 1000)
    assert names(tmp_path) == ["0.log"]


def test_another_writer_goes_on_where_the_last_one_was(tmp_path):
    RotatingLog(str(tmp_path / "0.log"), 6, 5).write(b"one\ntwo\nthree\n")
    RotatingLog(str(tmp_path / "0.log"), 6, 5).write(b"four\n")
    assert (tmp_path / "0.log").read_bytes() == b"four\n"
    assert (tmp_path / "0.log.3").read_bytes() == b"three\n"


@pytest.mark.parametrize(("max_bytes", "files"), [(113, ["0.log", "0.log.1"]), (114, ["0.log", "0.times"])])
def test_a_long_list_of_times_counts_too(tmp_path, max_bytes, files):
    """A line a moment, for days, would make the list longer than the log."""
    path = tmp_path / "0.log"
    log = RotatingLog(str(path), max_bytes, 5)
    log.write(b"a\n")
    times_file(path).write_text("2 1700000000000000000\n" * 5)
    log.write(b"b\n")
    assert names(tmp_path) == files
    assert path.read_bytes().endswith(b"b\n")


async def test_a_log_of_many_moments_goes_on_when_its_bytes_are_used(tmp_path):
    """As in Kubernetes, where the time stands before each line."""
    path = tmp_path / "0.log"
    log, times = RotatingLog(str(path), 4000, 5), LogTimesWriter()
    times.follow(path)
    used = 0
    for number in range(1000):
        log.write(b"tick\n")
        if full_files(str(path)):
            break
        os.utime(path, ns=(10**18 + number, 10**18 + number))
        times.look_at(path)
        used = path.stat().st_size + times_file(path).stat().st_size
    times.close()
    # Of the last line the time came behind it.
    assert abs(used - 4000) < log_files.LONGEST_TIME


@pytest.mark.parametrize(("max_bytes", "max_files"), [(0, 5), (10, 1)])
def test_limits_that_make_no_sense(max_bytes, max_files):
    with pytest.raises(ValueError):
        LogLimits(max_bytes, max_files)


# --- reading


@pytest.mark.parametrize("asked", [{}, {"timestamps": True}, {"since_ns": 1}], ids=["plain", "timestamps", "since"])
async def test_who_follows_sees_all_files_in_order(tmp_path, monkeypatch, asked):
    monkeypatch.setattr(log_files, "FOLLOW_EVERY_S", 0.001)
    path = tmp_path / "0.log"
    log = RotatingLog(str(path), 40, 20)
    log.write(b"line 0\n")
    writing = iter(range(1, 60))

    def is_written():
        # Several files become full between two looks.
        for number in [number for _, number in zip(range(13), writing, strict=False)]:
            log.write(b"line %d\n" % number)
            wrote.append(number)
        return wrote[-1] < 59

    wrote = [0]
    found = await content(path, is_written, follow=True, **asked)
    lines = [line.split(b" ", 1)[1] if "timestamps" in asked else line for line in found.splitlines()]
    assert lines == [b"line %d" % number for number in range(60)]
    assert len(full_files(str(path))) > 8


async def test_who_follows_too_slowly_goes_on_with_the_oldest_file(tmp_path):
    path = tmp_path / "0.log"
    log = RotatingLog(str(path), 8, 3)
    log.write(b"line 0\n")
    stream = read_log(path, LogRequest(follow=True), lambda: False)
    assert await anext(stream) == b"line 0\n"
    for number in range(1, 10):
        log.write(b"line %d\n" % number)
    assert b"".join([chunk async for chunk in stream]) == b"line 7\nline 8\nline 9\n"


async def test_the_last_lines_are_those_of_the_newest_file(tmp_path):
    path = tmp_path / "0.log"
    RotatingLog(str(path), 16, 3).write(b"one\ntwo\nthree\nfour\nfive\n")
    assert await content(path, tail_lines=1) == b"five\n"
    assert await content(path, tail_lines=9) == b"four\nfive\n"


@pytest.mark.parametrize("timestamps", [False, True])
@pytest.mark.parametrize(("tail", "expected"), [(0, []), (2, [b"2", b"3"]), (9, [b"1", b"2", b"3"])])
async def test_lines_that_come_while_the_last_ones_are_read_were_not_asked_for(
    tmp_path, monkeypatch, tail, expected, timestamps
):
    path = tmp_path / "0.log"
    log = RotatingLog(str(path), -1, 2)
    log.write(b"1\n2\n3\n")
    seek = log_files._seek_to_last_lines

    def written_meanwhile(*of):
        seek(*of)
        log.write(b"4\n")

    monkeypatch.setattr(log_files, "_seek_to_last_lines", written_meanwhile)
    found = await content(path, tail_lines=tail, timestamps=timestamps)
    assert [line.split()[-1] for line in found.splitlines()] == expected


async def test_a_container_in_a_hurry_does_not_make_its_log_endless(tmp_path):
    path = tmp_path / "0.log"
    log = RotatingLog(str(path), -1, 2)
    log.write(b"0\n")
    count = 0
    async for _ in read_log(path, LogRequest(timestamps=True)):
        count += 1
        log.write(b"more\n")
        assert count < 5
    assert count == 1


async def test_times_of_another_file_do_not_count(tmp_path):
    path = tmp_path / "0.log"
    log = RotatingLog(str(path), 1000, 3)
    times = LogTimesWriter()
    log.write(b"x" * 900 + b"\n")
    os.utime(path, ns=(5, 5))
    times.follow(path)
    times.look_at(path)
    assert read_times(path) == [(901, 5)]
    log.write(b"y" * 200 + b"\n")
    os.utime(path, ns=(7, 7))
    times.look_at(path)
    times.close()
    assert read_times(path) == [(201, 7)]
    # As if it had been recorded just before the file was replaced.
    times_file(path).write_text("901 5\n201 7\n")
    assert read_times(path) == [(201, 7)]


async def test_a_list_of_times_is_read_again_only_when_it_has_changed(tmp_path, monkeypatch):
    path = tmp_path / "0.log"
    path.write_bytes(b"\n" * 5000)
    times_file(path).write_text("10 1\n")
    reads = []
    read = log_files._read_on
    monkeypatch.setattr(log_files, "_read_on", lambda *of: reads.append(of) or read(*of))
    assert (await content(path, timestamps=True)).count(b"\n") == 5000
    assert len(reads) == 1


async def test_of_a_list_of_times_that_grows_only_the_new_lines_are_read(tmp_path):
    path = tmp_path / "0.log"
    path.touch()

    def steps_to_follow(count):
        times_file(path).unlink(missing_ok=True)
        with path.open("rb") as file, times_file(path).open("a") as recorded:
            times = LineTimes(path, file)
            with counted_steps() as steps:
                for number in range(count):
                    print(2 * number + 2, number, file=recorded, flush=True)
                    assert times.at(2 * number) == number
            return steps.taken

    assert steps_to_follow(400) < 2.3 * steps_to_follow(200)


async def test_an_agent_that_starts_again_goes_on_with_the_list_of_times(tmp_path):
    path = tmp_path / "0.log"
    path.write_bytes(b"1\n2\n")
    times_file(path).write_text("2 5\n4 6\n")
    os.utime(path, ns=(9, 9))
    times = LogTimesWriter()
    times.follow(path)
    times.look_at(path)
    assert read_times(path) == [(2, 5), (4, 6)]
    with path.open("ab") as file:
        file.write(b"3\n")
    os.utime(path, ns=(9, 9))
    times.look_at(path)
    times.close()
    assert read_times(path) == [(2, 5), (4, 6), (6, 9)]


# --- containers


FLOOD = "import sys\nfor i in range(60000): sys.stdout.write(f'{i:09d}\\n')"
LIMITS = LogLimits(100_000, 3)


@pytest.fixture
async def runtime(tmp_path):
    runtime = ProcessRuntime(tmp_path, RealClock(), log_limits=LIMITS)
    yield runtime
    await runtime.stop_pod("pod-uid")


async def test_a_container_that_writes_much_keeps_its_last_lines(runtime, tmp_path):
    container = await start(runtime, a_spec(tmp_path, sys.executable, "-c", FLOOD))
    assert (await container.wait()).code == 0
    path = tmp_path / "logs" / "0.log"
    kept = all_files(path)
    assert len(kept) == LIMITS.max_files
    lines = b"".join(each.read_bytes() for each in kept).splitlines()
    assert lines == [b"%09d" % number for number in range(60000 - len(lines), 60000)]
    assert all(each.stat().st_size <= LIMITS.max_bytes for each in kept)


async def test_a_container_writes_on_within_its_limits_while_no_agent_runs(runtime, tmp_path):
    marker = tmp_path / "go"
    script = f"import os, time\nwhile not os.path.exists('{marker}'): time.sleep(0.01)\n{FLOOD}"
    await start(runtime, a_spec(tmp_path, sys.executable, "-c", script))
    await runtime.close()
    again = ProcessRuntime(tmp_path, RealClock(), log_limits=LIMITS)
    found, _ = await again.find_container(POD, "c")
    marker.touch()
    assert (await found.wait()).code == 0
    path = tmp_path / "logs" / "0.log"
    assert path.read_bytes().endswith(b"000059999\n")
    assert sum(each.stat().st_size for each in path.parent.iterdir() if each.name.startswith("0.log")) <= 300_000
    await again.close()


TALK = "trap : PIPE; n=0; while [ $n -lt 400 ]; do n=$((n+1)); echo $n || exit 9; sleep 0.005; done"


def log_writer_of(folder):
    state = json.loads((folder / "pods" / "pod-uid" / "containers" / "c" / "state.json").read_text())
    return state["logWriter"][0]


async def kill_writer(folder, lines):
    path = folder / "logs" / "0.log"
    await eventually(lambda: path.exists() and path.read_bytes().count(b"\n") >= lines)
    os.kill(log_writer_of(folder), signal.SIGKILL)


async def test_a_log_goes_on_when_its_writer_is_killed(runtime, tmp_path):
    container = await start(runtime, a_spec(tmp_path, "sh", "-c", TALK))
    ended = asyncio.ensure_future(container.wait())
    writers = set()
    for lines in (20, 100, 200):
        writers.add(log_writer_of(tmp_path))
        await kill_writer(tmp_path, lines)
        await eventually(lambda: log_writer_of(tmp_path) not in writers)
    assert (await ended).code == 0
    lines = (tmp_path / "logs" / "0.log").read_text().split()
    assert lines[-1] == "400"
    # What a writer had read and not yet written is gone with it.
    assert len(lines) >= 390


async def test_an_agent_that_starts_again_looks_after_the_writer(runtime, tmp_path):
    await start(
        runtime, a_spec(tmp_path, "sh", "-c", TALK.replace("trap : PIPE", 'trap "" PIPE').replace(" || exit 9", ""))
    )
    await runtime.close()
    await kill_writer(tmp_path, 20)
    again = ProcessRuntime(tmp_path, RealClock(), log_limits=LIMITS)
    found, _ = await again.find_container(POD, "c")
    assert (await found.wait()).code == 0
    assert (tmp_path / "logs" / "0.log").read_bytes().endswith(b"\n400\n")
    await again.close()


async def test_an_agent_that_starts_again_begins_no_second_writer(runtime, tmp_path):
    container = await start(runtime, a_spec(tmp_path, "sh", "-c", TALK))
    ended = asyncio.ensure_future(container.wait())
    first = log_writer_of(tmp_path)
    await kill_writer(tmp_path, 20)
    await eventually(lambda: log_writer_of(tmp_path) != first)
    second = log_writer_of(tmp_path)
    again = ProcessRuntime(tmp_path, RealClock(), log_limits=LIMITS)
    found, _ = await again.find_container(POD, "c")
    assert (await found.wait()).code == 0
    assert (await ended).code == 0
    assert log_writer_of(tmp_path) == second
    await again.close()


async def test_the_agent_keeps_no_descriptor_of_a_container_that_has_ended(runtime, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for attempt in range(3):
        await (await start(runtime, a_spec(tmp_path, "sh", "-c", "echo hello", attempt=attempt))).wait()
    await eventually(lambda: len(os.listdir("/proc/self/fd")) == before)


async def test_the_last_output_on_a_terminal_is_in_the_log(runtime, tmp_path, monkeypatch):
    """The kernel hands it over a moment later, at times after the end of the container."""
    piece, waits = HeldTerminal._piece, asyncio.Event()

    async def late(terminal):
        await waits.wait()
        return await piece(terminal)

    monkeypatch.setattr(HeldTerminal, "_piece", late)
    container = await start(runtime, replace(a_spec(tmp_path, "sh", "-c", "echo the end"), tty=True))
    ended = asyncio.ensure_future(container.wait())
    await eventually(lambda: (tmp_path / "pods/pod-uid/containers/c/exit-code").exists())
    await let_others_run()
    waits.set()
    assert (await ended).code == 0
    assert (tmp_path / "logs" / "0.log").read_bytes() == b"the end\r\n"


async def test_a_process_that_outlives_its_container_does_not_keep_it_from_ending(runtime, tmp_path):
    container = await start(runtime, a_spec(tmp_path, "sh", "-c", "setsid sleep 8 & echo $!; exit 3"))
    async with asyncio.timeout(6):
        assert (await container.wait()).code == 3
    os.kill(int((tmp_path / "logs" / "0.log").read_text()), signal.SIGKILL)


async def test_of_earlier_attempts_only_the_last_ones_log_is_kept(runtime, tmp_path):
    for attempt in range(4):
        spec = a_spec(tmp_path, sys.executable, "-c", FLOOD, attempt=attempt)
        await (await start(runtime, spec)).wait()
    logs = {name.split(".")[0] for name in names(tmp_path / "logs")}
    assert logs == {"2", "3"}
