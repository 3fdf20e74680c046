"""/healthz, /livez and /readyz, and /version."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable

from dray import __version__
from dray.apiserver.request.query_options import Query
from dray.http.responses import Response

ENDPOINTS = ("healthz", "livez", "readyz")
TEXT = "text/plain; charset=utf-8"
Check = Callable[[], Awaitable[bool]]


class Health:
    """Named checks; `ping` always holds."""

    def __init__(self, checks: dict[str, Check]) -> None:
        self._checks: dict[str, Check] = {"ping": _always, **checks}

    async def answer(self, parts: list[str], query: Query) -> Response | None:
        if parts[0] not in ENDPOINTS or len(parts) > 2:
            return None
        if len(parts) == 2 and parts[1] not in self._checks:
            return None
        names = [parts[1]] if len(parts) == 2 else [name for name in self._checks if name not in query.all("exclude")]
        results = {name: await self._holds(name) for name in names}
        if all(results.values()):
            if "verbose" not in query or len(parts) == 2:
                return Response(200, b"ok", TEXT)
            return Response(200, self._report(parts[0], results, "passed").encode(), TEXT)
        return Response(500, self._report(parts[0], results, "failed").encode(), TEXT)

    async def _holds(self, name: str) -> bool:
        try:
            return await self._checks[name]()
        except Exception:
            return False

    def _report(self, endpoint: str, results: dict[str, bool], verdict: str) -> str:
        lines = [f"[+]{name} ok" if holds else f"[-]{name} failed: reason withheld" for name, holds in results.items()]
        return "\n".join([*lines, f"{endpoint} check {verdict}"]) + "\n"


async def _always() -> bool:
    return True


def version_document(minor: str = "37") -> dict[str, str]:
    return {
        "major": "1",
        "minor": minor,
        "emulationMajor": "1",
        "emulationMinor": minor,
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v1.{minor}.0+dray-{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
