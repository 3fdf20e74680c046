"""Writes the reference pages that follow from the code: commands and feature gates. `--check` only compares."""

import argparse
import sys
from pathlib import Path

import click

from dray.cli.main import COMMANDS, cli
from dray.features import GATES, RELEASES, FeatureGates

PAGES = Path(__file__).parent.parent / "docs" / "reference"


def feature_gates_page() -> str:
    head = " | ".join(RELEASES)
    lines = [
        "# Feature gates",
        "",
        "Made from `dray/features.py`. By default everything is on; `--emulate RELEASE` takes that release's column, and",
        "`--feature-gates A=true,B=false` changes single gates on top.",
        "",
        f"| gate | needs | {head} | default |",
        "|---|---|" + "---|" * (len(RELEASES) + 1),
    ]
    default = FeatureGates.default()
    for gate in GATES.values():
        states = [gate.at(release) for release in RELEASES]
        cells = [
            f"{s.stage.lower()}, {'on' if s.default else 'off'}{' (locked)' if s.locked else ''}" if s else ""
            for s in states
        ]
        needs = ", ".join(gate.needs)
        lines.append(
            f"| `{gate.name}` | {needs} | {' | '.join(cells)} | {'on' if default.enabled(gate.name) else 'off'} |"
        )
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    lines = [
        "# Commands",
        "",
        "Made from the commands' own `--help`. Exit codes: 0 yes, 1 no, 2 wrong usage, 3 broken world.",
        "",
    ]
    root = click.Context(cli, info_name="dray")
    for name in sorted(COMMANDS):
        command = cli.get_command(root, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=root, max_content_width=100, terminal_width=100)
        lines += [f"## dray {name}", "", "```", command.get_help(context), "```", ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    stale = []
    for name, text in {"feature-gates.md": feature_gates_page(), "commands.md": commands_page()}.items():
        path = PAGES / name
        if path.exists() and path.read_text() == text:
            continue
        if is_check:
            stale.append(name)
        else:
            path.write_text(text)
    for name in stale:
        print(f"docs/reference/{name} is not what the code says: run `make fix`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
