"""Becomes a container's command: gives up root, then everything else that came with it. Run as a program of its own, by nothing but its file.

It starts as the first process of new mount, process and network namespaces, or in those of a running container, as root, without any variable of the
container in its environment, and reads from the descriptor in its argument what to become. The container's variables count only after the last privilege is gone: one such as LD_PRELOAD
would otherwise run code of the container as root. The same holds for its volumes, whose content and place the pod chooses: they are mounted last, by
system calls, and after that root runs no other program.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import sys
from typing import Any

CLONE_NEWUSER = 0x10000000
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
SIOCSIFFLAGS = 0x8914
IFF_UP = 1
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC = 1, 32, 4096, 16384
# The first process of a process namespace gets no signal that it does not handle, so it is a shell that lets them pass to the command.
INIT = 'trap : TERM INT HUP; "$@"; exit $?'
CANNOT_START = 126


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(int(sys.argv[1])) as told:
        wanted = json.load(told)
    if wanted["joins"]:
        _join(wanted, libc)
    if wanted["ownNetwork"]:
        _switch_on_loopback()
    _mount_all(wanted["mounts"], wanted["mountRoot"], libc)
    _give_up_root(wanted["uid"], libc)
    _in_a_user_namespace(wanted["uid"], libc)
    _ignore_no_signal()
    os.chdir(wanted["workingDir"])
    os.execve("/bin/sh", ["sh", "-c", INIT, "sh", *wanted["command"]], wanted["env"])


def _join(wanted: dict[str, Any], libc: Any) -> None:
    """Becomes a command in the namespaces of a running container, in which this program was started."""
    with open("/proc/1/ns/user") as users:
        _give_up_root(wanted["uid"], libc)
        # The pod's user made this namespace, so it may enter it. It is the machine's own where the kernel makes no others.
        is_own = os.readlink("/proc/self/ns/user") == os.readlink(f"/proc/self/fd/{users.fileno()}")
        if not is_own and libc.setns(users.fileno(), CLONE_NEWUSER) != 0:
            raise OSError(ctypes.get_errno(), "the container's user namespace cannot be entered")
    _ignore_no_signal()
    os.chdir(wanted["workingDir"])
    os.execve(wanted["command"][0], wanted["command"], wanted["env"])


def _ignore_no_signal() -> None:
    """A program keeps ignoring what was ignored before it: broken pipes by this Python, and whatever the agent was started with."""
    for number in signal.valid_signals():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _switch_on_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))


def _mount_all(mounts: list[dict[str, Any]], root: str, libc: Any) -> None:
    """Bind mounts; mount points below `root`, which is a new file system, are made, all others exist."""
    if not mounts:
        return
    _mount(libc, "dray", root, "tmpfs", 0)
    for each in mounts:
        point = os.path.normpath(each["point"])
        if point.startswith(f"{root}/"):
            _make_point(point, each["host"])
        _mount(libc, each["host"], point, None, MS_BIND | MS_REC)
        if each["readOnly"]:
            _mount(libc, None, point, None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def _make_point(point: str, host: str) -> None:
    if os.path.isdir(host):
        os.makedirs(point, 0o755, exist_ok=True)
        return
    os.makedirs(os.path.dirname(point), 0o755, exist_ok=True)
    with open(point, "a"):
        pass


def _mount(libc: Any, source: str | None, point: str, kind: str | None, flags: int) -> None:
    texts = [each.encode() if each is not None else None for each in (source, point, kind)]
    if libc.mount(*texts, ctypes.c_ulong(flags), None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{source or 'read-only'} cannot be mounted at {point}: {os.strerror(number)}")


def _give_up_root(uid: int, libc: Any) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")
    # Its own files below /proc belong to root otherwise, and the maps of a user namespace are among them.
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def _in_a_user_namespace(uid: int, libc: Any) -> None:
    """The command believes to be root, of a namespace in which there is nobody else. Where the kernel refuses, it has just its user."""
    if libc.unshare(CLONE_NEWUSER) != 0:
        return
    for name, content in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {uid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)


if __name__ == "__main__":
    try:
        main()
    except OSError as problem:
        print(f"the container cannot be started: {problem}", file=sys.stderr)
        sys.exit(CANNOT_START)
