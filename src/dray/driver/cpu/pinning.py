"""How containers of a runtime get to their CPUs and memory: the runtime asks over NRI, and containers show a grant.

A grant is a random word in the environment of containers that use a claim. Whoever only knows the claim's name or UID, and
writes a variable into a pod's spec, gets nothing.
"""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar


class Granted(Protocol):
    @property
    def grant(self) -> str: ...


G = TypeVar("G", bound=Granted)


def variable(kind: str, claim_uid: str, value: str) -> str:
    """A variable for one claim. Shells drop variables whose names are no identifiers."""
    return f"{kind}_{claim_uid.replace('-', '_')}={value}"


def granted(records: Iterable[G], environment: Mapping[str, str], kind: str) -> list[G]:
    """The records whose grant is in the environment."""
    shown = {value for name, value in environment.items() if name.startswith(f"{kind}_")}
    return [record for record in records if record.grant in shown]


def add_nri_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nri-socket",
        type=Path,
        metavar="PATH",
        help="the container runtime's NRI socket, mostly /var/run/nri/nri.sock; default: containers of a runtime are left alone",
    )
