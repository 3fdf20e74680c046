"""Network namespaces of the real kernel, made for a test and removed after it: the machine's own interfaces are never touched."""

import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.driver.net.pods import WHOLE, Pod

from dray.driver.net import NetDriver

_numbers = itertools.count()


def why_not() -> str:
    """Why no network namespaces can be made here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "not on this machine: ip (Debian: iproute2)"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return f"the kernel makes no network namespaces: {done.stderr.strip()}" if done.returncode else ""


class Namespace:
    """A namespace with a name, for the test and for `ip`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = Path("/run/netns") / name

    def ip(self, *arguments: str) -> str:
        return _run("ip", "-n", self.name, *arguments)

    def run(self, *command: str, check: bool = True) -> str:
        return _run("ip", "netns", "exec", self.name, *command, check=check)

    def interfaces(self) -> set[str]:
        return {line.split(": ")[1].partition("@")[0] for line in self.ip("-o", "link").splitlines()}


def _run(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"
    return done.stdout


@pytest.fixture(scope="session")
def has_namespaces():
    if missing := why_not():
        pytest.skip(missing)


@pytest.fixture
def make_namespace(has_namespaces):
    made = []

    def make(role: str) -> Namespace:
        namespace = Namespace(f"dray-{os.getpid()}-{next(_numbers)}-{role}")
        _run("ip", "netns", "add", namespace.name)
        made.append(namespace)
        return namespace

    yield make
    for namespace in made:
        subprocess.run(["ip", "netns", "del", namespace.name], capture_output=True, check=False)


@pytest.fixture
def host(make_namespace):
    """Stands for the machine: a bridge, and interfaces whose other ends are its ports."""
    host = make_namespace("host")
    host.ip("link", "add", "br0", "type", "bridge")
    for name in ("eth1", "eth2"):
        host.ip("link", "add", name, "type", "veth", "peer", "name", f"{name}-port")
        host.ip("link", "set", f"{name}-port", "master", "br0")
    for name in ("lo", "br0", "eth1-port", "eth2-port", "eth2"):
        host.ip("link", "set", name, "up")
    return host


@pytest.fixture
def make_pod(has_namespaces):
    made = []

    def make():
        made.append(Pod())
        return made[-1]

    yield make
    for pod in made:
        pod.end()


@pytest.fixture
def begin(host, tmp_path):
    """A life of the driver; all of them in a test share their data folder, as after a restart."""
    lives = []

    def build(choice=WHOLE):
        driver = NetDriver(choice, host=host.path)
        driver.reports = {}
        driver.report_status = lambda claim, devices: driver.reports.update({claim.uid: list(devices)})
        driver.restore(tmp_path)
        driver.published_pools = tuple(driver.pools("n"))
        lives.append(driver)
        return driver

    yield build
    for key in [path.name for path in (tmp_path / "namespaces").glob("*")]:
        lives[-1]._kept.let_go(key)
