"""Runs the hooks of CDI files, which drivers write to prepare a container for its devices."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dray.api.cdi import Hook
from dray.kubelet.errors import start_error

log = logging.getLogger(__name__)


def oci_state(id_: str, folder: Path, status: str, pid: int = 0) -> dict[str, Any]:
    """What a hook reads from its input, as the OCI runtime specification has it."""
    return {"ociVersion": "1.0.2", "id": id_, "status": status, "pid": pid, "bundle": str(folder)}


async def run_hook(hook: Hook, state: Mapping[str, Any]) -> None:
    """A CDI hook; one that fails before the start fails the container, later ones are only reported."""
    environment: Mapping[str, str] = dict(entry.partition("=")[::2] for entry in hook.env)
    problem = ""
    try:
        process = await asyncio.create_subprocess_exec(
            hook.path,
            *hook.args[1:],
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(hook.timeout or 30):
                _, said = await process.communicate(json.dumps(state).encode())
        except TimeoutError:
            process.kill()
            problem = "no end within its timeout"
        else:
            words = said.decode(errors="replace").strip()
            problem = (f"exit code {process.returncode}" + f": {words}" * bool(words)) * bool(process.returncode)
    except OSError as error:
        problem = str(error.strerror)
    if problem and hook.hook_name in ("poststart", "poststop"):
        log.warning("CDI hook %s (%s): %s", hook.path, hook.hook_name, problem)
    elif problem:
        raise start_error(f"CDI hook {hook.path} ({hook.hook_name}): {problem}")
