"""How a container runtime tells the driver of a container that is about to start: a CDI hook that runs on the host.

The hook needs a shell and nothing of Dray's, so that it also works where the driver itself runs in a container. It writes
a line into a named pipe in the driver's folder and waits for a file with the answer.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from dray.api.cdi import ContainerEdits, Hook
from dray.atomic_files import write_atomically
from dray.driver.plugin import PrepareError

log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 20
_ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",)
_OK = "ok"

SCRIPT = f"""\
# Asks the driver to bring an interface into the network of a container that is about to start.
# Arguments: the driver's folder, the claim, the number of the device. The container's state is on the input.
cd "$1" || exit 1
pid=$(tr -d '\\n' | sed -n 's/.*"pid": *\\([0-9][0-9]*\\).*/\\1/p')
if [ -z "$pid" ]; then echo "the state of the container names no process" >&2; exit 1; fi
answer="answers/$$-$pid-$3"
# Open for reading, too: this does not wait for the driver, and keeps the line until a driver that restarts reads it.
exec 3<>requests
echo "$2 $3 $pid $answer" >&3
rounds=0
until [ -e "$answer" ]; do
  rounds=$((rounds + 1))
  if [ "$rounds" -gt {ANSWER_WITHIN_S * 20} ]; then echo "the driver does not answer" >&2; exit 1; fi
  sleep 0.05
done
read -r said < "$answer"
rm -f "$answer"
if [ "$said" = {_OK} ]; then exit 0; fi
echo "$said" >&2
exit 1
"""

Attach = Callable[[str, int, int], None]
"""Brings device number N of a claim into the network of a process; PrepareError says why not."""


class HookRequests:
    """The driver's end: a thread that answers hooks, one after the other, for as long as the process lives."""

    def __init__(self, folder: Path, attach: Attach) -> None:
        self._folder = folder
        self._attach = attach

    def serve(self) -> None:
        answers = self._folder / "answers"
        answers.mkdir(mode=0o700, exist_ok=True)
        for old in answers.iterdir():
            old.unlink(missing_ok=True)
        write_atomically(self._script, SCRIPT.encode())
        pipe = self._folder / "requests"
        with contextlib.suppress(FileExistsError):
            os.mkfifo(pipe, 0o600)
        threading.Thread(target=self._answer_all, args=(pipe,), name="hook requests", daemon=True).start()

    def edits(self, claim_uid: str, number: int) -> ContainerEdits:
        """What makes a runtime call the hook when it starts a container."""
        hook = Hook(
            hook_name="createRuntime",
            path="/bin/sh",
            args=("sh", str(self._script), str(self._folder), claim_uid, str(number)),
            env=_ENVIRONMENT,
            timeout=ANSWER_WITHIN_S + 5,
        )
        return ContainerEdits(hooks=(hook,))

    @property
    def _script(self) -> Path:
        return self._folder / "hook.sh"

    def _answer_all(self, pipe: Path) -> None:
        # Open for writing, too, so that there is no end of file when no hook has it open.
        with open(os.open(pipe, os.O_RDWR), "rb", buffering=0) as requests:
            rest = b""
            while True:
                *lines, rest = (rest + requests.read(1 << 12)).split(b"\n")
                for line in lines:
                    self._answer(line.decode(errors="replace"))

    def _answer(self, line: str) -> None:
        try:
            claim_uid, number, pid, answer = line.split(" ")
            said = self._outcome(claim_uid, int(number), int(pid))
            write_atomically(self._folder / "answers" / Path(answer).name, f"{said}\n".encode())
        except (ValueError, OSError) as error:
            log.error("a hook asked for %r, which cannot be answered: %s", line, error)

    def _outcome(self, claim_uid: str, number: int, pid: int) -> str:
        try:
            self._attach(claim_uid, number, pid)
        except PrepareError as error:
            return " ".join(str(error).split())
        except Exception as error:
            log.exception("claim %s: the interface cannot be brought into the pod", claim_uid)
            return " ".join(f"{type(error).__name__}: {error}".split())
        return _OK
