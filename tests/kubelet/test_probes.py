"""Probes and lifecycle hooks: readiness in the status, restarts by liveness, commands after the start and before the end."""

import asyncio
import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from dray.api.codec import to_object
from dray.api.core import ExecAction, Pod, Probe
from dray.kubelet.probes import Handlers, ProbeFailure
from tests.builders.manifests import a_container, a_pod
from tests.kubelet.worker_rig import WorkerRig

RIG = WorkerRig


def probed(**fields):
    container = a_container("main", image="i", **fields)
    return to_object(a_pod("p", container, namespace="ns", uid="uid-1", node="n1", restartPolicy="Always"), Pod)


def command(name, **more):
    return {"exec": {"command": [name]}, "periodSeconds": 5, **more}


async def test_a_container_is_ready_when_its_probe_says_so(rig):
    rig.runtime.commands["ready"] = (1, "not yet\n")
    await rig.start(probed(readinessProbe=command("ready")))
    assert (rig.container()["started"], rig.container()["ready"], rig.condition("Ready")) == (True, False, "False")
    assert rig.events.seen == [("Unhealthy", "Readiness probe failed: not yet")]
    rig.runtime.commands["ready"] = (0, "")
    await rig.settle(5.1)
    assert (rig.container()["ready"], rig.condition("Ready")) == (True, "True")
    rig.runtime.commands["ready"] = (1, "busy")
    await rig.settle(5.1)
    assert rig.container()["ready"], "one failure is not enough"
    await rig.settle(5.1)
    await rig.settle(5.1)
    assert (rig.container()["ready"], rig.container()["restartCount"]) == (False, 0)


async def test_a_container_that_fails_its_liveness_probe_is_restarted(rig):
    rig.runtime.commands |= {"alive": (1, "stuck"), "bye": (0, "")}
    hook = {"preStop": {"exec": {"command": ["bye"]}}}
    await rig.start(probed(livenessProbe=command("alive", failureThreshold=2), lifecycle=hook))
    assert rig.runtime.log == ["start main 0", "run alive"]
    rig.runtime.commands["alive"] = (1, "stuck")
    await rig.settle(5.1)
    assert rig.runtime.log[1:5] == ["run alive", "run alive", "run bye", "stop main"]
    assert ("Killing", "Container main failed liveness probe, will be restarted") in rig.events.told
    assert rig.runtime.log[5] == "start main 1"
    assert rig.container()["restartCount"] == 1


async def test_other_probes_wait_for_the_startup_probe(rig):
    rig.runtime.commands |= {"up": (1, "loading"), "alive": (0, "")}
    await rig.start(probed(startupProbe=command("up"), livenessProbe=command("alive")))
    assert (rig.container()["started"], rig.runtime.log[1:]) == (False, ["run up"])
    rig.runtime.commands["up"] = (0, "")
    await rig.settle(5.1)
    assert (rig.container()["started"], rig.container()["ready"]) == (True, True)
    assert rig.runtime.log[1:] == ["run up", "run up", "run alive"]


async def test_hooks_run_after_the_start_and_before_the_end(rig):
    rig.runtime.commands |= {"hello": (0, ""), "bye": (3, "no time")}
    hooks = {"postStart": {"exec": {"command": ["hello"]}}, "preStop": {"exec": {"command": ["bye"]}}}
    await rig.start(probed(lifecycle=hooks))
    await rig.delete()
    assert rig.runtime.log[:4] == ["start main 0", "run hello", "run bye", "stop main"]
    assert ("FailedPreStopHook", "PreStopHook failed: no time") in rig.events.seen


async def test_a_container_whose_first_hook_fails_is_stopped(rig):
    rig.runtime.commands["hello"] = (1, "oops")
    await rig.start(probed(lifecycle={"postStart": {"exec": {"command": ["hello"]}}}))
    assert ("FailedPostStartHook", "PostStartHook failed: oops") in rig.events.seen
    assert "stop main" in rig.runtime.log


# --- other ways to ask than commands


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/good" and self.headers["X-Asked"] == "yes" else 503)
        self.end_headers()

    def log_message(self, *_):
        return


@pytest.fixture
def port():
    server = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


async def ask(probe, ports=()):
    pod = to_object(a_pod("p", a_container("c", ports=list(ports), livenessProbe=probe)), Pod)
    [container] = pod.spec.containers
    await Handlers(container, None, "127.0.0.1").run(container.liveness_probe, 5)


async def test_a_page_is_asked_for(port):
    headers = [{"name": "X-Asked", "value": "yes"}]
    await ask({"httpGet": {"path": "/good", "port": port, "httpHeaders": headers}})
    await ask(
        {"httpGet": {"path": "/good", "port": "web", "httpHeaders": headers}},
        [{"name": "web", "containerPort": port}],
    )
    with pytest.raises(ProbeFailure, match="HTTP probe failed with statuscode: 503"):
        await ask({"httpGet": {"path": "/bad", "port": port}})
    with pytest.raises(ProbeFailure, match="couldn't find port: nowhere"):
        await ask({"httpGet": {"path": "/", "port": "nowhere"}})


async def test_a_port_is_connected_to(port):
    await ask({"tcpSocket": {"port": port}})
    with contextlib.closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ProbeFailure):
            await ask({"tcpSocket": {"port": unused.getsockname()[1]}})


async def test_a_probe_that_takes_too_long_has_failed():
    class Slow:
        async def run_command(self, command, timeout_s):
            await asyncio.Event().wait()

    pod = to_object(a_pod("p", a_container("c")), Pod)
    probe = Probe(exec=ExecAction(command=("x",)))
    with pytest.raises(ProbeFailure, match=r"timed out after 0\.01s"):
        await Handlers(pod.spec.containers[0], Slow(), "").run(probe, 0.01)
