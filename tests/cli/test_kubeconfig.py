"""`dray kubeconfig`: certificates for others."""

import base64
from datetime import UTC, datetime
from pathlib import Path

import yaml
from click.testing import CliRunner
from cryptography import x509

from dray.apiserver.security.certificates import subject_of
from dray.apiserver.security.credentials import load_credentials
from dray.cli.main import cli
from dray.store.sqlite import SqliteStore


async def test_a_kubeconfig_for_a_node(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "dray.db")
    credentials = await load_credentials(store, tmp_path, [], datetime.now(UTC))
    await store.close()
    output = tmp_path / "n1.kubeconfig"
    arguments = ["kubeconfig", "--data", str(tmp_path), "--server", "https://h:1", "--user", "system:node:n1"]
    result = CliRunner().invoke(cli, [*arguments, "--group", "system:nodes", "--output", str(output)])
    assert result.exit_code == 0, result.output
    assert output.stat().st_mode & 0o777 == 0o600
    config = yaml.safe_load(output.read_text())
    pem = base64.b64decode(config["users"][0]["user"]["client-certificate-data"])
    certificate = x509.load_pem_x509_certificate(pem)
    assert subject_of(certificate) == ("system:node:n1", ("system:nodes",))
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(credentials.authority.certificate_pem))
    assert config["clusters"][0]["cluster"]["server"] == "https://h:1"


def test_a_directory_without_authority_is_a_broken_world(tmp_path: Path) -> None:
    arguments = ["kubeconfig", "--data", str(tmp_path), "--server", "https://h:1", "--user", "alice"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 3
    assert "holds no certificate authority" in result.output
