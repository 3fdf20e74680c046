"""Streams to containers with kubectl: exec, attach, cp, port-forward and logs that are followed, over WebSocket and over SPDY."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.blackbox.conftest import script_pod
from tests.kubectl import KUBECTL, TIMEOUT_S, Kubectl
from tests.waiting import eventually_blocking

# kubectl itself falls back to SPDY when WebSockets are switched off for it.
PROTOCOLS = pytest.mark.parametrize("websockets", ["true", "false"], ids=["websocket", "spdy"])


@pytest.fixture(scope="module")
def pod(kubectl: Kubectl) -> Iterator[str]:
    script = "trap 'exit 0' TERM; echo started; i=0; while true; do i=$((i+1)); echo tick $i; sleep 0.2; done"
    kubectl.apply(script_pod("streams", script))
    kubectl.run("wait", "--for=condition=Ready", "pod/streams", "--timeout=60s")
    yield "streams"
    kubectl.run("delete", "pod", "streams", "--now")


@pytest.fixture
def over(kubectl: Kubectl, websockets: str) -> Iterator[Kubectl]:
    names = ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS")
    before = dict(kubectl.environment)
    kubectl.environment.update(dict.fromkeys(names, websockets))
    yield kubectl
    kubectl.environment.clear()
    kubectl.environment.update(before)


@contextmanager
def running(kubectl: Kubectl, *words: str) -> Iterator[subprocess.Popen[str]]:
    assert KUBECTL is not None
    process = subprocess.Popen(
        [KUBECTL, *words], env=kubectl.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


@PROTOCOLS
def test_exec(over: Kubectl, pod: str) -> None:
    assert over.run("exec", pod, "--", "echo", "hello").strip() == "hello"
    failed = over.run("exec", pod, "--", "sh", "-c", "echo out; echo err >&2; exit 3", fails=True)
    assert "out" in failed
    assert "err" in failed
    assert "command terminated with exit code 3" in failed
    assert over.run("exec", "-i", pod, "--", "wc", "-c", stdin="x" * 300_000).strip() == "300000"
    missing = over.run("exec", pod, "--", "no-such-program", fails=True)
    assert 'exec: "no-such-program": executable file not found in $PATH' in missing
    assert "container other is not valid for pod streams" in over.run(
        "exec", pod, "-c", "other", "--", "ls", fails=True
    )


@PROTOCOLS
def test_cp(over: Kubectl, pod: str, tmp_path: Path) -> None:
    data = os.urandom(1_000_000)
    (tmp_path / "here").write_bytes(data)
    over.run("cp", str(tmp_path / "here"), f"{pod}:{tmp_path}/there")
    assert hashlib.sha256((tmp_path / "there").read_bytes()).digest() == hashlib.sha256(data).digest()
    over.run("cp", f"{pod}:{tmp_path}/there", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data


@PROTOCOLS
def test_port_forward(over: Kubectl, pod: str, tmp_path: Path) -> None:
    (tmp_path / "page").write_text("hello from the pod")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    with running(over, "exec", pod, "--", *serve):
        # kubectl gives up at the first connection that the pod refuses.
        eventually_blocking(lambda: page(f"127.0.0.1:{port}"), "the page in the pod")
        with running(over, "port-forward", pod, f":{port}") as forward:
            assert forward.stdout is not None
            local = forward.stdout.readline().split()[2]
            assert [page(local) for _ in range(5)] == [b"hello from the pod"] * 5


def page(address: str) -> bytes:
    try:
        with urllib.request.urlopen(f"http://{address}/page", timeout=5) as answer:
            found: bytes = answer.read()
    except OSError:
        return b""
    return found


@PROTOCOLS
def test_attach(over: Kubectl, pod: str) -> None:
    with running(over, "attach", pod) as attached:
        assert attached.stdout is not None
        seen = ""
        while "tick" not in seen:
            seen = attached.stdout.readline()
            assert seen, "the stream ended"


def test_logs_are_followed(kubectl: Kubectl, pod: str) -> None:
    with running(kubectl, "logs", "-f", "--tail=1", pod) as followed:
        assert followed.stdout is not None
        lines = [followed.stdout.readline() for _ in range(4)]
    numbers = [int(line.split()[1]) for line in lines]
    assert numbers == list(range(numbers[0], numbers[0] + 4))


def test_who_may_not(kubectl: Kubectl, pod: str) -> None:
    refused = kubectl.run("exec", pod, "--as=vera", "--", "ls", fails=True)
    assert 'User "vera" cannot' in refused


def test_debug_and_run_with_input(kubectl: Kubectl, pod: str) -> None:
    """Commands are typed as soon as the stream stands, and read when the shell is there."""
    words = ("--image=image", "--target=main", "-c", "debugger", "--", "sh")
    assert "typed 42" in kubectl.run("debug", "-i", pod, *words, stdin="echo typed $((40+2)); sleep 0.5; exit\n")
    kubectl.until("terminated", "get", "pod", pod, "-o", "jsonpath={.status.ephemeralContainerStatuses[0].state}")
    assert "typed 42" in kubectl.run("logs", pod, "-c", "debugger")
    run = ("run", "-i", "--rm", "shell", "--image=image", "--restart=Never", "--command", "--", "sh")
    assert "typed 42" in kubectl.run(*run, stdin="echo typed $((40+2)); sleep 0.5\n")


def test_debugging_a_node(kubectl: Kubectl) -> None:
    said = kubectl.run("debug", "node/node-1", "--image=image", "--", "echo", "on the node")
    name = said.split("Creating debugging pod ")[1].split()[0]
    kubectl.run("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", "--timeout=60s")
    assert kubectl.run("logs", name).strip() == "on the node"
    kubectl.run("delete", "pod", name, "--now")
