"""A containerd of its own for a test: everything below one folder, one tiny image, no network."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.waiting import eventually_blocking

IMAGE = "dray.local/busybox:1"
PROGRAMS = ("sh", "env", "sleep", "cat", "echo", "id")

CONFIG = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  enable_cdi = {cdi}
  cdi_spec_dirs = ["{cdi_dir}"]
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
"""
NRI = """
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "{folder}/nri.sock"
  plugin_path = "{folder}/nri"
  plugin_config_path = "{folder}/nri"
  plugin_request_timeout = "20s"
"""
CNI_PLUGINS = Path("/usr/lib/cni")
# Pods of most tests are in the node's network; a kubelet asks for a network of their own all the same.
NETWORK = '{"cniVersion": "1.0.0", "name": "loopback", "plugins": [{"type": "loopback"}]}'
# A network of their own: a pair of interfaces for each pod, with an address.
POD_NETWORK = """{{"cniVersion": "1.0.0", "name": "pods", "plugins": [{{"type": "ptp", "ipam": {{"type": "host-local",
 "ranges": [[{{"subnet": "10.88.79.0/24"}}]], "routes": [{{"dst": "0.0.0.0/0"}}], "dataDir": "{folder}/ipam"}}}}]}}"""


def why_not() -> str:
    """Why no containerd can run here; empty if one can."""
    if os.geteuid() != 0:
        return "containerd needs root"
    missing = [name for name in ("containerd", "ctr", "runc", "busybox") if shutil.which(name) is None]
    if missing:
        return f"not on this machine: {', '.join(missing)} (Debian: containerd runc busybox-static)"
    linked = subprocess.run(["ldd", str(shutil.which("busybox"))], capture_output=True, text=True, check=False)
    return "" if "not a dynamic executable" in linked.stdout + linked.stderr else "busybox is not static"


def version() -> tuple[int, ...]:
    text = subprocess.run(["containerd", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else (0, 0)


def why_not_1_7() -> str:
    """Why no containerd that knows CDI and NRI can run here; empty if one can."""
    return why_not() or ("" if version() >= (1, 7) else "containerd on the PATH is older than 1.7")


def why_no_pod_network() -> str:
    """Why pods of a containerd cannot have a network of their own here; empty if they can."""
    is_there = (CNI_PLUGINS / "ptp").exists()
    return why_not_1_7() or ("" if is_there else f"no {CNI_PLUGINS}/ptp (Debian: containernetworking-plugins)")


class Containerd:
    """`applies_cdi` off: a runtime that does not know CDI devices, as there are many. `has_nri`: plugins may connect to `nri.sock`.

    `has_pod_network`: pods may have a network of their own, made by the CNI plugins.
    """

    def __init__(
        self,
        folder: Path,
        cdi_dir: Path,
        *,
        applies_cdi: bool = True,
        has_nri: bool = False,
        has_pod_network: bool = False,
    ) -> None:
        self._folder = folder
        self._network = POD_NETWORK.format(folder=folder) if has_pod_network else NETWORK
        self._config = (CONFIG + NRI if has_nri else CONFIG).format(
            folder=folder, plugins=CNI_PLUGINS, image=IMAGE, cdi_dir=cdi_dir, cdi="true" if applies_cdi else "false"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.socket = folder / "c.sock"
        self.log = folder / "containerd.log"

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "config.toml").write_text(self._config)
        (self._folder / "cni").mkdir(exist_ok=True)
        (self._folder / "cni/10-pods.conflist").write_text(self._network)
        with self.log.open("ab") as output:
            command = ["containerd", "--config", str(self._folder / "config.toml")]
            self._process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        archive = self._folder / "image.tar"
        make_image(archive)
        eventually_blocking(
            lambda: not self.ctr("images", "import", str(archive)).returncode, lambda: self.log.read_text()[-3000:], 60
        )

    def ctr(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def containers(self) -> list[str]:
        return self.ctr("containers", "ls", "--quiet").stdout.split()

    def restart(self) -> None:
        """Containers go on without it."""
        self._end()
        self.start()

    def stop(self) -> None:
        networks = set()
        for name in self.containers():
            networks.update(self._networks_of(name))
            self.ctr("tasks", "kill", "--signal", "SIGKILL", name)
            self.ctr("tasks", "rm", "--force", name)
            self.ctr("containers", "rm", name)
        self._end()
        for network in networks:
            # With a pod's network, the node's end of it goes, and the route to the pod's address.
            subprocess.run(["ip", "netns", "del", network], capture_output=True, check=False)
        for mount in _mounts_below(self._folder):
            subprocess.run(["umount", "--lazy", mount], check=False)

    def _networks_of(self, container: str) -> list[str]:
        """The network namespaces that CNI has made for the container's pod, by name."""
        spec = self.ctr("containers", "info", "--spec", container).stdout
        return re.findall(r'"path": "/var/run/netns/(cni-[^"]+)"', spec)

    def _end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None


def _mounts_below(folder: Path) -> list[str]:
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [point for point in reversed(points) if point.startswith(f"{folder}/")]


def make_image(path: Path) -> None:
    """Busybox, and its programs as links to it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        add_folders(tar)
        tar.add(os.path.realpath(str(shutil.which("busybox"))), "bin/busybox")
        for name in PROGRAMS:
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    write_archive(path, IMAGE, layer.getvalue(), {"Env": ["PATH=/bin"], "Cmd": ["sleep", "1000000"]})


def add_folders(tar: tarfile.TarFile) -> None:
    for name in ("bin", "tmp", "proc", "sys", "dev", "etc"):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(entry)


def write_archive(path: Path, image: str, content: bytes, command: dict) -> None:
    """A docker archive with one layer."""
    config = {
        "architecture": "arm64" if os.uname().machine == "aarch64" else "amd64",
        "os": "linux",
        "config": command,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        for name, data in (
            ("config.json", json.dumps(config).encode()),
            ("layer.tar", content),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
