"""`dray lint`: manifests checked without a server."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from dray.cli.options import gate_options, gates_from
from dray.cli.output import Coloured, show_line
from dray.features import FeatureGates
from dray.validation.lint import LintFinding
from dray.validation.lint import lint as lint_manifest
from dray.validation.shorthand_hints import read_with_hints

_SUFFIXES = (".yaml", ".yml", ".json")
_COLOURS = {"error": "red", "warning": "yellow", "hint": "cyan"}


@click.command()
@click.option("-f", "--filename", "filenames", multiple=True, help="File, directory, or - for standard input.")
@gate_options
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print findings.")
@click.argument("more", nargs=-1, type=click.Path())
def lint(
    filenames: tuple[str, ...], emulate: str | None, feature_gates: str, output: str, more: tuple[str, ...]
) -> None:
    """Check manifests without a server: validation, unknown fields, CEL, gates, old spellings.

    Prints one line per finding, "file:line: severity: path: message". Exit status 1 says that there are errors.

    \b
    Examples:
      dray lint -f claim.yaml
      dray lint -f manifests/ --emulate 1.36
      kubectl get resourceslices -o yaml | dray lint -f -
    """
    gates = gates_from(feature_gates, emulate)
    places = [*filenames, *more]
    if not places:
        raise click.UsageError("name a file, a directory, or - for standard input with -f")
    found = [row for place in places for row in _findings(place, gates)]
    if output == "json":
        click.echo(json.dumps([_as_json(source, finding) for source, finding in found], indent=2))
    else:
        for source, finding in found:
            _show(source, finding)
    if any(finding.severity == "error" for _, finding in found):
        sys.exit(1)


def _findings(place: str, gates: FeatureGates) -> Iterator[tuple[str, LintFinding]]:
    sources = list(_sources(place))
    files = [(name, *read_with_hints(data)) for name, data in sources]
    namespaces = {
        str(meta.get("name")): meta.get("labels") or {}
        for _, manifests, _ in files
        for meta in (m.document.get("metadata") or {} for m in manifests if m.kind == "Namespace")
        if isinstance(meta, dict)
    }
    for name, manifests, broken in files:
        found = [LintFinding(line, "error", "", message) for line, message in broken]
        for manifest in manifests:
            found.extend(lint_manifest(manifest, gates, namespaces))
        yield from ((name, finding) for finding in sorted(found, key=lambda finding: finding.line))


def _sources(place: str) -> Iterator[tuple[str, bytes]]:
    if place == "-":
        yield "-", sys.stdin.buffer.read()
        return
    path = Path(place)
    if not path.exists():
        raise click.UsageError(f"{place} does not exist")
    files = sorted(p for p in path.rglob("*") if p.suffix in _SUFFIXES and p.is_file()) if path.is_dir() else [path]
    for file in files:
        try:
            yield str(file), file.read_bytes()
        except OSError as error:
            raise click.UsageError(f"{file} cannot be read: {error.strerror}") from None


def _show(source: str, finding: LintFinding) -> None:
    severity = Coloured(finding.severity, _COLOURS[finding.severity])
    path = f"{finding.path}: " if finding.path else ""
    # A CEL message goes on with the expression and a caret; here each finding has one line.
    show_line(f"{source}:{finding.line}: ", severity, f": {path}{finding.message.splitlines()[0]}")


def _as_json(source: str, finding: LintFinding) -> dict[str, object]:
    return {
        "file": source,
        "line": finding.line,
        "severity": finding.severity,
        "path": finding.path,
        "message": finding.message,
    }
