"""A host's folders with made-up driver files, and a control daemon of CUDA MPS that is a real process without a card."""

import stat
import sys
from pathlib import Path

_CONTROL = """#!{python} -IS
import os, socket, sys
folder = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
path = os.path.join(folder, "control")

def serve():
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    with open(os.path.join(folder, "nvidia-cuda-mps-control.pid"), "w") as file:
        file.write(str(os.getpid()))
    while True:
        connection, _ = server.accept()
        command = connection.recv(1000).decode()
        connection.sendall(b"100.0\\n")
        connection.close()
        if command.startswith("quit") and not os.path.exists(os.path.join(folder, "stubborn")):
            os.unlink(path)
            return

if os.path.exists(os.path.join(os.path.dirname(folder), "broken")):
    sys.exit("cannot create the socket")
if sys.argv[1:] == ["-d"]:
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        serve()
    sys.exit(0)
client = socket.socket(socket.AF_UNIX)
try:
    client.connect(path)
except OSError:
    sys.exit("Cannot find MPS control daemon process")
client.sendall(sys.stdin.read().encode())
print(client.recv(1000).decode(), end="")
"""


def make_driver_root(root: Path) -> Path:
    """A driver root as on the machine where NVIDIA's files lie below one folder."""
    for name in ("libcuda.so.1", "libcuda.so.580.159.04", "libnvidia-ml.so.1"):
        _write(root / "lib64" / name, "")
    _write(root / "bin/nvidia-smi", "#!/bin/sh\n", is_program=True)
    _write(root / "bin/nvidia-cuda-mps-control", _CONTROL.format(python=sys.executable), is_program=True)
    return root


def make_dev(dev: Path, *minors: int) -> Path:
    for name in (*(f"nvidia{minor}" for minor in minors), "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        _write(dev / name, "")
    return dev


def make_sysfs(sysfs: Path, bus_id: str = "0000:00:06.0") -> Path:
    """The card's folder is a link below the root that it hangs on."""
    real = sysfs / "devices/pci0000:00" / bus_id
    _write(real / "numa_node", "-1\n")
    link = sysfs / "bus/pci/devices" / bus_id
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    return sysfs


def _write(path: Path, text: str, is_program: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if is_program:
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
