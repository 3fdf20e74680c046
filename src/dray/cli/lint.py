"""`dray lint`: manifests checked without a server."""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from dray.cli.options import gate_options, gates_from, output_option
from dray.cli.output import Coloured, counted, show_line, write_document
from dray.features import FeatureGates
from dray.validation.lint import LintFinding
from dray.validation.lint import lint as lint_manifest
from dray.validation.shorthand_hints import read_with_hints

_SUFFIXES = (".yaml", ".yml", ".json")
_COLOURS = {"error": "red", "warning": "yellow", "hint": "cyan"}


@click.command()
@click.option("-f", "--filename", "filenames", multiple=True, help="File, directory, or - for standard input.")
@gate_options
@output_option("wide shows the expression of a CEL finding, too.")
@click.argument("more", nargs=-1, type=click.Path())
def lint(
    filenames: tuple[str, ...], emulate: str | None, feature_gates: str, output: str, more: tuple[str, ...]
) -> None:
    """Check manifests without a server: validation, unknown fields, CEL, gates, old spellings.

    Prints one line per finding, "file:line: severity: path: message", and what was checked on standard error. Exit
    status 1 says that there are errors.

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
    checked = [file for place in places for file in _checked(place, gates)]
    found = [(each.name, finding) for each in checked for finding in each.findings]
    if output in ("json", "yaml"):
        write_document([_document(source, finding) for source, finding in found], output)
    else:
        for source, finding in found:
            _show(source, finding, is_wide=output == "wide")
        click.echo(_summary(checked), err=True)
    if any(finding.severity == "error" for _, finding in found):
        sys.exit(1)


@dataclass(frozen=True, slots=True)
class _CheckedFile:
    name: str
    objects: int
    findings: list[LintFinding]


def _summary(checked: list[_CheckedFile]) -> str:
    objects = sum(each.objects for each in checked)
    counts: Counter[str] = Counter(finding.severity for each in checked for finding in each.findings)
    words = [counted(counts[severity], severity) for severity in _COLOURS if counts[severity]]
    return f"{counted(objects, 'object')}, {', '.join(words) or 'no problems'}"


def _checked(place: str, gates: FeatureGates) -> Iterator[_CheckedFile]:
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
        yield _CheckedFile(name, len(manifests), sorted(found, key=lambda finding: finding.line))


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


def _show(source: str, finding: LintFinding, *, is_wide: bool) -> None:
    severity = Coloured(finding.severity, _COLOURS[finding.severity])
    path = f"{finding.path}: " if finding.path else ""
    # A CEL message goes on with the expression and a caret.
    first, *more = finding.message.splitlines()
    show_line(f"{source}:{finding.line}: ", severity, f": {path}{first}")
    for line in more if is_wide else ():
        show_line(f"  {line}")


def _document(source: str, finding: LintFinding) -> dict[str, object]:
    return {
        "file": source,
        "line": finding.line,
        "severity": finding.severity,
        "path": finding.path,
        "message": finding.message,
    }
