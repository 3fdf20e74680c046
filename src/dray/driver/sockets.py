"""Socket names by the conventions that kubelets and other drivers know."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

MAX_SOCKET_PATH = 107


@dataclass(frozen=True, slots=True)
class Sockets:
    service: Path
    registration: Path


def socket_paths(driver: str, data_dir: Path, registry_dir: Path, instance: str = "") -> Sockets:
    """Where a driver listens. `instance` (its pod's UID) lets two instances serve side by side during an update."""
    if not instance:
        return Sockets(data_dir / "dra.sock", registry_dir / f"{driver}-reg.sock")
    return Sockets(data_dir / f"dra-{instance}.sock", _registration_of_instance(driver, registry_dir, instance))


def _registration_of_instance(driver: str, registry_dir: Path, instance: str) -> Path:
    names = (
        f"{driver}-{instance}-reg.sock",
        f"{driver}-{_digest(instance.encode(), 8)}-reg.sock",
        f"dra-{_digest(driver.encode() + bytes(1) + instance.encode(), 16)}-reg.sock",
    )
    for name in names:
        if len(str(registry_dir / name)) <= MAX_SOCKET_PATH:
            return registry_dir / name
    raise OSError(f"registration directory {registry_dir}: its path is too long for a socket inside it")


def _digest(content: bytes, length: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()[:length]).rstrip(b"=").decode()
