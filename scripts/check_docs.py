"""Checks that the documentation keeps up: every command and every feature gate is documented, every link leads somewhere."""

import re
import sys
from pathlib import Path

from dray.cli.main import COMMANDS
from dray.features import GATES

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]


def broken_links() -> list[str]:
    problems = []
    for page in pages():
        for target in _LINK.findall(page.read_text()):
            if "://" in target or target.startswith("mailto:"):
                continue
            if not (page.parent / target).exists():
                problems.append(f"{page.relative_to(ROOT)}: link to {target} leads nowhere")
    return problems


def undocumented() -> list[str]:
    text = "\n".join(page.read_text() for page in pages())
    problems = [f"command `dray {name}` is not documented" for name in COMMANDS if f"dray {name}" not in text]
    return problems + [f"feature gate {gate} is not documented" for gate in gate_names() if gate not in text]


def gate_names() -> list[str]:
    return list(GATES)


def main() -> int:
    problems = broken_links() + undocumented()
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
