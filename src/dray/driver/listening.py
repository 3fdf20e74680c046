"""Sockets of our own: they appear ready to be called, and only we remove them."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import grpc

from dray.driver.sockets import MAX_SOCKET_PATH


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
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        server.add_insecure_port(f"unix:{hidden.absolute()}")
    except RuntimeError as error:
        raise OSError(f"socket {path}: {error}") from error
    await server.start()
    identity = _identity(hidden)
    if identity is None:
        raise OSError(f"socket {path}: it was removed while it was made")
    os.replace(hidden, path)
    return OwnSocket(path, identity)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
