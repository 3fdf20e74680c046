"""The runtime that a node agent is told to use, by its name on the command line."""

from __future__ import annotations

import logging
from pathlib import Path

from dray.clock import Clock
from dray.kubelet.runtime.cgroup import CgroupTree, open_cpusets
from dray.kubelet.runtime.cri import CriRuntime
from dray.kubelet.runtime.interface import Runtime
from dray.kubelet.runtime.isolation import Isolation, available_isolation
from dray.kubelet.runtime.none import NoRuntime
from dray.kubelet.runtime.process import LogLimits, ProcessRuntime

log = logging.getLogger(__name__)

CRI = "cri://"
GROUPS = "dray"


class UnknownRuntime(ValueError):
    """No runtime has this name."""


def make_runtime(name: str, root_dir: Path, clock: Clock, isolation: str, log_limits: LogLimits) -> Runtime:
    """`isolation` is auto or none; it and the limits of logs are for local processes."""
    if name == "process":
        cgroups = CgroupTree.open(GROUPS)
        return ProcessRuntime(
            root_dir, clock, cgroups, _isolation(isolation), open_cpusets(GROUPS, cgroups), log_limits
        )
    if name == "none":
        return NoRuntime(clock)
    if name.startswith(CRI):
        return CriRuntime(name.removeprefix(CRI), root_dir / "logs", CgroupTree.open(GROUPS))
    raise UnknownRuntime(f"--runtime {name}: must be process, none or cri://SOCKET")


def _isolation(chosen: str) -> Isolation | None:
    if chosen == "none":
        return None
    found = available_isolation()
    if isinstance(found, str):
        log.warning("containers run as the agent's user, without namespaces: %s", found)
        return None
    return found
