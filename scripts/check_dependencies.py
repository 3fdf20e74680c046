"""Checks what is installed, offline, from the packages' own metadata.

Every package that pyproject.toml names is explained in docs/dependencies.md; every package that a user gets with Dray, named or
brought along by another, has a permissive licence; and the installed versions are those that pyproject.toml asks for.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
# As metadata spells them: SPDX expressions, classifiers and free text.
PERMISSIVE = re.compile(
    r"\b(MIT|BSD|0BSD|Apache|ISC|PSF|Python Software Foundation|MPL.2\.0|Unlicense|Zlib)\b", re.IGNORECASE
)
COPYLEFT = re.compile(r"\b(A?GPL|LGPL|SSPL|BUSL|Commons Clause)\b")


def named() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(text) for text in project["dependencies"]]


def applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def brought_along(names: list[str]) -> Iterator[str]:
    """Every package that installing these installs."""
    seen: set[str] = set()
    while names:
        name = names.pop()
        if canonicalize_name(name) in seen:
            continue
        seen.add(canonicalize_name(name))
        yield name
        required = (Requirement(text) for text in metadata.requires(name) or ())
        names += [each.name for each in required if applies(each)]


def licence_of(name: str) -> str:
    found = metadata.metadata(name)
    expression = found.get("License-Expression")
    if expression:
        return str(expression)
    classifiers = [
        each.rpartition("::")[2].strip() for each in found.get_all("Classifier") or () if "License ::" in each
    ]
    return ", ".join(classifiers) or str(found.get("License") or "").split("\n")[0]


def problems() -> Iterator[str]:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    wanted = [each for each in named() if applies(each)]
    for each in wanted:
        if f"`{each.name}`" not in page:
            yield f"{each.name} is not explained in docs/dependencies.md"
        if not each.specifier.contains(metadata.version(each.name), prereleases=True):
            yield f"{each.name} {metadata.version(each.name)} is installed, {each.specifier} is asked for"
    for name in brought_along([each.name for each in wanted]):
        licence = licence_of(name)
        if not PERMISSIVE.search(licence) or (COPYLEFT.search(licence) and " OR " not in licence):
            yield f"{name}: its licence is {licence or 'not stated'}, which is not known to be permissive"


def main() -> int:
    found = sorted(problems())
    for problem in found:
        print(problem)
    if not found:
        packages = list(brought_along([each.name for each in named() if applies(each)]))
        print(f"{len(packages)} packages come with Dray, all named or brought along, all with permissive licences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
