"""One cluster of processes with a running pod, and certificates for whoever a test wants to be."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from dray.apiserver.security.certificates import Authority
from dray.apiserver.security.credentials import local_authority
from tests.e2e.processes import ClusterOfProcesses, wait_until
from tests.torture.etcd_cluster import free_port

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


class Site(ClusterOfProcesses):
    @property
    def authority(self) -> Authority:
        return local_authority(self.folder / "data")

    @property
    def address(self) -> tuple[str, int]:
        server = yaml.safe_load(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        host, _, port = server.removeprefix("https://").partition(":")
        return host, int(port)

    def tls(
        self, user: str = "", *groups: str, authority: Authority | None = None, now: datetime | None = None
    ) -> ssl.SSLContext:
        """A client's side; with `user`, with a certificate of that name by the cluster's authority or by another."""
        context = ssl.create_default_context(cadata=self.authority.certificate_pem.decode())
        if user:
            pair = (authority or self.authority).issue_client(user, groups, now)
            with tempfile.NamedTemporaryFile() as file:
                file.write(pair.certificate_pem + pair.key_pem)
                file.flush()
                context.load_cert_chain(file.name)
        return context


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="dray-s", ignore_cleanup_errors=True) as folder:
        site = Site(Path(folder), free_port())
        # Permissions must not depend on how the programs were started.
        before = os.umask(0)
        try:
            site.start()
            wait_until(lambda: "default" in site.kubectl("get", "serviceaccounts"), "the service account", site)
            site.kubectl("apply", "-f", str(EXAMPLES / "gpu/classes.yaml"), "-f", str(EXAMPLES / "gpu/one-gpu.yaml"))
            wait_until(
                lambda: site.kubectl("get", "pod", "one-gpu", "-o", "jsonpath={.status.phase}") == "Running",
                "the pod to run",
                site,
            )
            yield site
        finally:
            os.umask(before)
            site.stop()
