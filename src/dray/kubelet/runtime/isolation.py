"""Runs the containers of a pod as a user of their own, in user, mount, process and network namespaces, so that they cannot read the agent's or the server's files.

It needs root. A pod's user is a number that nobody else has, so that pods cannot touch each other either. This is no container
engine: containers see the machine's files as far as everybody may read them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from dray.kubelet.runtime.unprivileged_start import INIT

__all__ = ["CLEAN_ENVIRONMENT", "INIT", "START", "Isolation", "available_isolation", "uid_of"]

START = Path(__file__).parent / "unprivileged_start.py"
# Numbers that no user database hands out.
FIRST_UID, UIDS = 1_000_000_000, 1_000_000_000
# All that programs between the agent and the command get to see.
CLEAN_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_OWN_PROC = 'mount -t proc proc /proc; exec "$@"'


def uid_of(pod_uid: str) -> int:
    """The user of a pod's containers."""
    digest = blake2b(pod_uid.encode(), digest_size=8).digest()
    return FIRST_UID + int.from_bytes(digest, "big") % UIDS


@dataclass(frozen=True, slots=True)
class Isolation:
    """How this machine separates processes: the program that makes namespaces."""

    unshare: str

    def wrapped(self, *, own_network: bool) -> list[str]:
        """The command that reads from a descriptor, its last argument, what to become, with fewer rights."""
        namespaces = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
        network = ["--net"] if own_network else []
        python = [sys.executable, "-I", "-S", str(START)]
        return [self.unshare, *namespaces, *network, "/bin/sh", "-ec", _OWN_PROC, "sh", *python]


def available_isolation() -> Isolation | str:
    """How this machine can do it, or why it cannot."""
    if os.geteuid() != 0:
        return "the agent does not run as root"
    unshare = shutil.which("unshare", path=CLEAN_ENVIRONMENT["PATH"])
    if unshare is None:
        return "there is no unshare on this machine"
    found = Isolation(unshare)
    trial = [unshare, "--mount", "--propagation", "private", "--pid", "--fork", "--net", "/bin/sh", "-ec"]
    try:
        done = subprocess.run(
            [*trial, _OWN_PROC, "sh", "true"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"namespaces cannot be made: {problem}"
    if done.returncode != 0:
        return f"the kernel refuses namespaces: {done.stderr.strip()}"
    return found
