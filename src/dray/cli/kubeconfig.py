"""`dray kubeconfig`: a certificate and a kubeconfig for another user, a part of the cluster, or a node."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dray.apiserver.security.credentials import kubeconfig_text, local_authority
from dray.atomic_files import write_private
from dray.cli.main import BrokenWorld


@click.command(
    epilog="Example: dray kubeconfig --data ./cluster --server https://127.0.0.1:6443 --user system:node:n1 "
    "--group system:nodes --output n1.kubeconfig"
)
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The data directory of the API server.",
)
@click.option(
    "--keys",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of the authority's key, if the API server was started with --keys.",
)
@click.option("--server", required=True, metavar="URL", help="Where the API server is.")
@click.option("--user", required=True, help="User name, such as alice, system:kube-scheduler or system:node:NAME.")
@click.option("--group", "groups", multiple=True, help="Group of the user; can be given several times.")
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="File to write (default: print).")
def kubeconfig(
    data: Path, keys: Path | None, server: str, user: str, groups: tuple[str, ...], output: Path | None
) -> None:
    """Make a client certificate, signed by the server's authority, and a kubeconfig that uses it."""
    try:
        authority = local_authority(data, keys)
    except OSError as error:
        raise BrokenWorld(f"{keys or data} holds no certificate authority: {error.strerror}") from None
    pair = authority.issue_client(user, groups)
    text = kubeconfig_text(server, authority.certificate_pem, user, pair=pair)
    if output is None:
        sys.stdout.write(text)
    else:
        write_private(output, text.encode())
