"""The Unix sockets of a driver: their names, by the conventions that kubelets and other drivers know, and listening on them."""

import base64
import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import grpc

from dray.atomic_files import make_folder

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


@dataclass(frozen=True, slots=True)
class OwnSocket:
    """A socket file that this process listens on."""

    path: Path
    identity: tuple[int, int]

    def is_there(self) -> bool:
        """False when somebody removed it, or another process listens under its name now."""
        return _identity(self.path) == self.identity

    def remove(self) -> None:
        if self.is_there():
            self.path.unlink(missing_ok=True)


async def listen(server: grpc.aio.Server, path: Path) -> OwnSocket:
    """Start the server on a socket at `path`, in place of whatever was left there.

    gRPC removes the name it was given when it stops, whoever has that name by then: it is given one that nobody knows.
    """
    # A hidden name: kubelets do not take it for a plugin.
    hidden = path.with_name(f".{secrets.token_hex(3)}")
    longest = max(len(str(path.absolute())), len(str(hidden.absolute())))
    if longest > MAX_SOCKET_PATH:
        raise OSError(f"socket path {path}: {longest} characters, at most {MAX_SOCKET_PATH} are possible")
    make_folder(path.parent, 0o700)
    try:
        server.add_insecure_port(f"unix:{hidden.absolute()}")
    except RuntimeError as error:
        raise OSError(f"socket {path}: {error}") from error
    await server.start()
    identity = _identity(hidden)
    if identity is None:
        raise OSError(f"socket {path}: it was removed while it was made")
    hidden.chmod(0o600)
    os.replace(hidden, path)
    return OwnSocket(path, identity)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
