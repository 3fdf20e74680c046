"""A card, its shares and their users, on a real machine: starts a cluster, and prints what happens.

    python examples/nvidia/story.py --python PYTHON_WITH_TORCH --folder FOLDER

Two pods take 40 and 80 GiB of one card and compute side by side. A third waits, and `dray explain` says why. A pod takes more
than its share and is stopped by it, while its neighbour goes on. The driver is killed while pods run. The card reports a made-up
error. In the end nothing is left.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from dray.api.codec import encode
from dray.client import CLAIMS, NODES, PODS, SLICES, Client, connect
from dray.client.kinds import DEVICE_CLASSES, TEMPLATES

HERE = Path(__file__).parent
NODE = "h200"
METRICS = "127.0.0.1:9464"
KUBELET = "127.0.0.1:10248"


class Story:
    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.python = python
        self.kubeconfig = folder / "kubeconfig"
        self.events = folder / "events"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.began = time.monotonic()
        self.prepared_s = 0.0
        self.client: Client

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:6.2f} s] {text}", flush=True)

    def start(self, name: str, *arguments: str) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", "dray", *arguments], stdout=log, stderr=log, start_new_session=True
        )

    def start_driver(self) -> None:
        paths = ("--kubelet-root", str(self.folder / "node"), "--cdi-dir", str(self.folder / "cdi"))
        self.start(
            "driver",
            *("driver", "nvidia", "--share", "--kubeconfig", str(self.kubeconfig), "--node-name", NODE, *paths),
            *("--event-file", str(self.events), "--metrics-address", METRICS, "-v"),
        )

    async def start_all(self) -> None:
        self.start(
            "up",
            "up",
            "--nodes",
            "0",
            "--kubeconfig",
            str(self.kubeconfig),
            "--data",
            str(self.folder / "data"),
        )
        await self.until("the server answers", self.kubeconfig.exists)
        self.client = connect(str(self.kubeconfig), component="story")
        self.start(
            "kubelet",
            *(
                "kubelet",
                "--kubeconfig",
                str(self.kubeconfig),
                "--node-name",
                NODE,
                "--root-dir",
                str(self.folder / "node"),
            ),
            # CUDA MPS serves processes of one user.
            *("--cdi-dir", str(self.folder / "cdi"), "--isolation", "none", "-v"),
        )
        self.start_driver()
        await self.until_async("the node is there", self.has_node)
        await self.until_async("the slice is published", self.slice)

    async def has_node(self) -> Any:
        return await self.client.find(NODES, NODE)

    async def slice(self) -> Any:
        listing = await self.client.list(SLICES)
        return listing.items[0] if listing.items and listing.items[0].spec.devices else None

    async def until(self, what: str, holds: Callable[[], object], within_s: float = 60) -> None:
        async def ask() -> object:
            return holds()

        await self.until_async(what, ask, within_s)

    async def until_async(self, what: str, ask: Callable[[], Any], within_s: float = 60) -> Any:
        deadline = time.monotonic() + within_s
        while True:
            answer = await ask()
            if answer:
                self.say(what)
                return answer
            if time.monotonic() > deadline:
                raise SystemExit(f"not within {within_s:g} s: {what}")
            await asyncio.sleep(0.02)

    async def create_class(self) -> None:
        for document in yaml.safe_load_all((HERE / "shares.yaml").read_text()):
            kind = DEVICE_CLASSES if document["kind"] == "DeviceClass" else TEMPLATES
            namespace = () if kind is DEVICE_CLASSES else ("default",)
            await self.client.create(kind, document, *namespace)

    async def create_pod(self, name: str, template: str, *arguments: str) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
                "containers": [
                    {
                        "name": "work",
                        "image": "none",
                        "command": [self.python, str(HERE / "work.py"), *arguments],
                        "resources": {"claims": [{"name": "gpu"}]},
                    }
                ],
            },
        }
        self.say(f"pod {name}: {template}, work.py {' '.join(arguments)}")
        await self.client.create(PODS, pod, "default")

    async def until_phase(self, name: str, *phases: str, within_s: float = 90) -> str:
        async def phase() -> str | None:
            pod = await self.client.get(PODS, name, "default")
            return pod.status.phase if pod.status.phase in phases else None

        return str(await self.until_async(f"pod {name} is {' or '.join(phases)}", phase, within_s))

    async def until_says(self, name: str, text: str, within_s: float = 90) -> None:
        await self.until(f"pod {name} says: {text}", lambda: text in self.log(name), within_s)

    def log(self, name: str) -> str:
        found = sorted((self.folder / "node").rglob(f"*{name}*/**/*.log")) or sorted(
            (self.folder / "node").rglob(f"*{name}*.log")
        )
        return found[0].read_text() if found else ""

    async def show_log(self, name: str) -> None:
        for line in self.log(name).strip().splitlines():
            self.say(f"    {name}: {line}")

    async def delete(self, *names: str) -> None:
        for name in names:
            await self.client.delete(PODS, name, "default")

        async def are_gone() -> bool:
            return (
                not (await self.client.list(PODS, "default")).items
                and not (await self.client.list(CLAIMS, "default")).items
            )

        await self.until_async(f"{', '.join(names)}: pods and claims are gone", are_gone)

    def run(self, *command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def run_of_nvidia(self, program: str, *arguments: str) -> str:
        found = shutil.which(program) or shutil.which(program, path="/usr/local/nvidia/bin")
        return self.run(found, *arguments) if found else f"{program} is not on this machine"

    def show(self, text: str) -> None:
        for line in text.strip().splitlines():
            print(f"           {line}", flush=True)

    def metrics(self, word: str, address: str = METRICS) -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            return "\n".join(line for line in answer.read().decode().splitlines() if word in line and line[0] != "#")

    def is_registered(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{METRICS}/healthz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def say_prepare_time(self) -> None:
        """How long the driver took for its last preparation, as the node agent has measured it."""
        lines = self.metrics("dra_grpc_operations_duration_seconds_sum", KUBELET).splitlines()
        total = sum(float(line.rpartition(" ")[2]) for line in lines if "NodePrepareResources" in line)
        self.say(f"    the driver prepared the claim in {1000 * (total - self.prepared_s):.0f} ms")
        self.prepared_s = total

    def mps_processes(self) -> list[str]:
        listing = self.run("ps", "-eo", "pid,args").splitlines()
        return [line for line in listing if "nvidia-cuda-mps" in line and "ps -eo" not in line]

    def kill_driver(self) -> None:
        self.processes["driver"].send_signal(signal.SIGKILL)
        self.processes["driver"].wait()

    async def end(self) -> None:
        for name in ("driver", "kubelet", "up"):
            process = self.processes.get(name)
            if process is not None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(15)


async def tell(story: Story) -> None:
    await story.start_all()
    slice_ = await story.slice()
    story.show(json.dumps(json.loads(encode(slice_.spec)), indent=1))
    await story.create_class()

    story.say("--- a card for one pod")
    await story.create_pod("whole", "gpu-whole", "100")
    await story.until_phase("whole", "Succeeded")
    await story.show_log("whole")
    story.say_prepare_time()
    await story.delete("whole")

    story.say("--- one card, two shares")
    await story.create_pod("forty", "gpu-40gi", "30", "--hold", "45")
    await story.until_says("forty", "TFLOP/s")
    story.say_prepare_time()
    await story.create_pod("eighty", "gpu-80gi", "70", "--hold", "30")
    await story.until_says("eighty", "TFLOP/s")
    story.say_prepare_time()
    await story.show_log("forty")
    await story.show_log("eighty")
    # The driver asks the card once a second.
    await asyncio.sleep(2.5)
    story.show(story.metrics("dray_nvidia_"))
    story.show(story.run_of_nvidia("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv"))

    story.say("--- a third that waits")
    await story.create_pod("third", "gpu-40gi", "10")
    await asyncio.sleep(2)
    story.show(story.run(sys.executable, "-m", "dray", "explain", "third", "--kubeconfig", str(story.kubeconfig)))
    await story.until_phase("third", "Succeeded", within_s=120)
    await story.show_log("third")
    await story.until_phase("forty", "Succeeded")
    await story.until_phase("eighty", "Succeeded")
    await story.delete("forty", "eighty", "third")
    await story.until("no MPS process is left", lambda: not story.mps_processes())

    story.say("--- more than its share")
    await story.create_pod("neighbour", "gpu-80gi", "70", "--hold", "15")
    await story.until_says("neighbour", "TFLOP/s")
    await story.create_pod("greedy", "gpu-40gi", "60")
    await story.until_phase("greedy", "Failed")
    await story.show_log("greedy")
    await story.until_phase("neighbour", "Succeeded")
    await story.show_log("neighbour")
    await story.delete("greedy", "neighbour")

    story.say("--- the driver is killed while a pod computes")
    await story.create_pod("steady", "gpu-40gi", "30", "--hold", "12")
    await story.until_says("steady", "TFLOP/s")
    story.kill_driver()
    story.start_driver()
    await story.until_phase("steady", "Succeeded")
    await story.show_log("steady")
    await story.delete("steady")
    await story.until("no MPS process is left", lambda: not story.mps_processes())

    story.say("--- the driver is killed at every step of a preparation, and the pod is deleted meanwhile")
    for after_ms in (5, 10, 20, 30, 40, 60, 80, 120, 160, 240):
        await story.until("the driver is registered", story.is_registered)
        name = f"step-{after_ms}"
        await story.create_pod(name, "gpu-40gi", "1")
        await asyncio.sleep(after_ms / 1000)
        story.kill_driver()
        running = len(story.mps_processes())
        story.say(f"    killed after {after_ms} ms, with {running} MPS process(es)")
        await story.client.delete(PODS, name, "default", grace_seconds=0)
        story.start_driver()
        await story.until("no MPS process is left", lambda: not story.mps_processes())
    await story.until("nothing of a claim is left", lambda: not list((story.folder / "cdi").glob("gpu.nvidia.com-*")))

    story.say("--- the card reports an error")
    uuid = slice_.spec.devices[0].attributes["uuid"].string
    story.events.write_text(json.dumps({"uuid": uuid, "xid": 79}) + "\n")

    async def taints() -> Any:
        current = await story.slice()
        return current and current.spec.devices[0].taints

    for taint in await story.until_async("the card has a taint", taints):
        story.say(f"    {taint.key}={taint.value}:{taint.effect}")
    await story.create_pod("fourth", "gpu-40gi", "10")
    await asyncio.sleep(2)
    story.show(story.run(sys.executable, "-m", "dray", "explain", "fourth", "--kubeconfig", str(story.kubeconfig)))
    story.say("an administrator has reset the card and starts the driver anew")
    story.events.unlink()
    story.processes["driver"].terminate()
    story.processes["driver"].wait()
    story.start_driver()
    await story.until_phase("fourth", "Succeeded")
    await story.show_log("fourth")
    await story.delete("fourth")
    await story.until("no MPS process is left", lambda: not story.mps_processes())


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    os.environ.pop("KUBECONFIG", None)
    story = Story(options.folder.absolute(), options.python)
    try:
        await tell(story)
    finally:
        await story.end()


asyncio.run(main())
