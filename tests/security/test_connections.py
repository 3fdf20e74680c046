"""Who gets through TLS, and as whom: to the API server, and to the node agent's log port."""

import http.client
import json
import ssl
from datetime import UTC, datetime, timedelta

import pytest

from dray.apiserver.security.certificates import Authority

NODE_LOGS = "/containerLogs/default/one-gpu/main"


def get(address: tuple[str, int], context: ssl.SSLContext, path: str) -> tuple[int, str]:
    connection = http.client.HTTPSConnection(*address, context=context, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def log_port(site) -> tuple[str, int]:
    status = json.loads(site.kubectl("get", "node", "worker", "-o", "json"))["status"]
    return "127.0.0.1", status["daemonEndpoints"]["kubeletEndpoint"]["Port"]


def unchecked(context: ssl.SSLContext) -> ssl.SSLContext:
    """The node's certificate is its own; who calls is what matters here."""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.mark.parametrize("where", ["apiserver", "node"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1], ids=["1.0", "1.1"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_tls_is_refused(site, where, version):
    context = unchecked(site.tls())
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = version
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        get(site.address if where == "apiserver" else log_port(site), context, "/healthz")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_new_tls_is_spoken(site, version):
    context = site.tls()
    context.minimum_version = context.maximum_version = version
    assert get(site.address, context, "/healthz") == (200, "ok")


@pytest.mark.parametrize("where", ["apiserver", "node"])
def test_ciphers_without_authentication_are_refused(site, where):
    """CBC with a separate checksum: several attacks on TLS 1.2 need it."""
    context = unchecked(site.tls())
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-SHA256:ECDHE-RSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA:AES128-SHA")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        get(site.address if where == "apiserver" else log_port(site), context, "/healthz")


def test_the_server_shows_a_certificate_of_its_authority(site):
    with pytest.raises(ssl.SSLCertVerificationError):
        get(site.address, ssl.create_default_context(), "/healthz")


def test_a_certificate_of_another_authority_is_nobody(site):
    """Either TLS refuses it or it counts for nothing: never does a foreign authority make an administrator."""
    foreign = Authority.create("kubernetes")
    try:
        status, _ = get(site.address, site.tls("admin", "system:masters", authority=foreign), "/api/v1/secrets")
    except (ssl.SSLError, ConnectionError):
        return
    assert status in (401, 403)


def test_an_expired_certificate_is_refused(site):
    long_ago = datetime.now(UTC) - timedelta(days=4000)
    try:
        status, _ = get(site.address, site.tls("admin", "system:masters", now=long_ago), "/api/v1/secrets")
    except (ssl.SSLError, ConnectionError):
        return
    assert status == 401


@pytest.mark.parametrize(
    ("user", "groups", "path"),
    [
        ("system:node:worker", ("system:nodes",), "/api/v1/secrets"),
        ("system:node:worker", ("system:nodes",), "/apis/resource.k8s.io/v1/resourceclaims"),
        ("system:kube-scheduler", (), "/api/v1/secrets"),
        ("alice", (), "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"),
        ("", (), "/api/v1/namespaces"),
        ("", (), "/metrics"),
        ("", (), "/openapi/v2"),
    ],
)
def test_certificates_open_no_more_than_they_should(site, user, groups, path):
    status, body = get(site.address, site.tls(user, *groups), path)
    assert status == 403, body


class TestLogPort:
    def test_without_a_certificate_there_is_no_connection(self, site):
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            get(log_port(site), unchecked(site.tls()), NODE_LOGS)

    def test_a_foreign_certificate_gets_no_connection(self, site):
        context = site.tls("kube-apiserver-kubelet-client", "system:masters", authority=Authority.create("kubernetes"))
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            get(log_port(site), unchecked(context), NODE_LOGS)

    @pytest.mark.parametrize(
        ("user", "groups"), [("system:node:other", ("system:nodes",)), ("alice", ()), ("admin", ("system:masters",))]
    )
    def test_only_the_api_server_reads_logs(self, site, user, groups):
        status, body = get(log_port(site), unchecked(site.tls(user, *groups)), NODE_LOGS)
        assert status == 403
        assert "GPU_DEVICE" not in body

    def test_the_api_server_may(self, site):
        context = unchecked(site.tls("kube-apiserver-kubelet-client", "system:masters"))
        status, body = get(log_port(site), context, NODE_LOGS)
        assert status == 200, body
        assert "GPU_DEVICE_GPU_0" in body

    @pytest.mark.parametrize(
        "path", ["/containerLogs/default/../../x/main", "/containerLogs/*/*/main", "/../../etc/passwd"]
    )
    def test_paths_lead_nowhere(self, site, path):
        context = unchecked(site.tls("kube-apiserver-kubelet-client", "system:masters"))
        assert get(log_port(site), context, path)[0] in (400, 404)
