"""`dray dashboard` and what `dray up` prints."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.cli.main import cli
from dray.testing import cluster
from tests.waiting import eventually_blocking

DRAY = [sys.executable, "-m", "dray"]


def wait_for(path: Path, process: subprocess.Popen[str]) -> str:
    def is_written() -> bool:
        assert process.poll() is None, process.communicate()
        return path.exists() and bool(path.read_text().strip())

    eventually_blocking(is_written, f"{path}")
    return path.read_text().strip()


def stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=20)


def test_a_dashboard_for_any_cluster(tmp_path: Path) -> None:
    with cluster(nodes=1, devices=("gpu",)) as running:
        url_file = tmp_path / "url"
        command = [*DRAY, "dashboard", "--kubeconfig", str(running.kubeconfig), "--url-file", str(url_file)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        address = wait_for(url_file, process)
        assert os.stat(url_file).st_mode & 0o077 == 0
        page = address.partition("?")[0]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{page}/api/snapshot", timeout=30)
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        assert b"<title>Dray</title>" in browser.open(address, timeout=30).read()
        assert b'"node-1"' in browser.open(f"{page}/api/snapshot", timeout=20).read()
        stream = browser.open(f"{page}/api/events", timeout=20)
        assert stream.readline() == b"event: status\n"
        started = time.monotonic()
        out, err = stop(process)
        assert time.monotonic() - started < 20
        assert process.returncode == 0, err
        assert address in out
        assert "Traceback" not in err


def test_a_dump_opens_without_a_cluster(tmp_path: Path) -> None:
    dump, url_file = tmp_path / "dump.yaml", tmp_path / "url"
    dump.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: from-a-dump}\n")
    command = [*DRAY, "dashboard", "-f", str(dump), "--url-file", str(url_file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = wait_for(url_file, process)
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    page = browser.open(address, timeout=30).read()
    assert b'"isDump":true' in page
    assert b"dump.yaml" in page
    snapshot = browser.open(f"{address.partition('?')[0]}/api/snapshot", timeout=20).read()
    assert b'"from-a-dump"' in snapshot
    _, err = stop(process)
    assert process.returncode == 0, err
    assert "Traceback" not in err


@pytest.mark.parametrize("options", [["--kubeconfig", "k"], ["--context", "c"]])
def test_a_dump_or_a_cluster(options: list[str], tmp_path: Path) -> None:
    dump = tmp_path / "dump.yaml"
    dump.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n}\n")
    result = CliRunner().invoke(cli, ["dashboard", "-f", str(dump), *options])
    assert result.exit_code == 2


def test_up_prints_an_address_that_signs_in(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = [*DRAY, "up", "--nodes", "1", "--devices", "gpu", "--ready-file", str(ready)]
    command += ["--kubeconfig", str(tmp_path / "kubeconfig"), "--data", str(tmp_path / "data")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    url = wait_for(ready, process)
    out, err = stop(process)
    assert process.returncode == 0, err
    printed = next(line for line in out.splitlines() if line.startswith("dashboard:"))
    assert printed.split()[1].startswith(f"{url}/ui?token=")


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "example.com:80"])
def test_other_addresses_than_this_machines_are_refused(address: str) -> None:
    answer = CliRunner().invoke(cli, ["dashboard", "--listen", address])
    assert answer.exit_code == 2
    assert "on this machine only" in answer.output


def test_without_a_cluster_there_is_a_sentence(tmp_path: Path) -> None:
    answer = CliRunner().invoke(cli, ["dashboard", "--kubeconfig", str(tmp_path / "missing")])
    assert answer.exit_code == 3
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        " clusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}], users: [{name: a, user: {token: t}}]}"
    )
    answer = CliRunner().invoke(cli, ["dashboard", "--kubeconfig", str(config)])
    assert answer.exit_code == 3, answer.output
    assert "Traceback" not in answer.output
