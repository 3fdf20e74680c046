"""Asks for known vulnerabilities of every locked package (`pip-audit`). Where that cannot be known, it says why and passes.

A check that passes because nobody was asked must not look like one that found nothing: the number of packages that were looked up is printed.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.lock"
TIMEOUT_S = 120


def looked_up() -> list[dict[str, Any]] | str:
    """One entry for each package, or why there are none."""
    if find_spec("pip_audit") is None:
        return "pip-audit is not installed"
    options = ("--disable-pip", "--require-hashes", "--progress-spinner", "off", "--timeout", "5", "--format", "json")
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
        return found
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_S} s"
    except (ValueError, KeyError):
        return (done.stderr.strip().splitlines() or ["pip-audit gave no answer"])[-1]


def main() -> int:
    answer = looked_up()
    if isinstance(answer, str):
        print(f"vulnerabilities: not checked: {answer}")
        return 0
    known = [each for each in answer if "skip_reason" not in each]
    if not known:
        print("vulnerabilities: not checked: the index knows none of the packages, or cannot be reached")
        return 0
    found = [(each, vulnerability) for each in known for vulnerability in each["vulns"]]
    for each, vulnerability in found:
        fixed = ", ".join(vulnerability["fix_versions"]) or "no release yet"
        print(f"{each['name']} {each['version']}: {vulnerability['id']}; fixed in {fixed}")
    print(f"vulnerabilities: {len(found)} in {len(known)} of {len(answer)} locked packages that the index knows")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
