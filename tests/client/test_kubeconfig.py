"""Finding the server and the user in kubeconfig files and inside pods."""

import base64
import json
import os
import stat

import pytest
import yaml

from dray.client import KubeconfigError, load_connection
from dray.client.credentials import BasicAuth, CredentialsError, ExecPlugin, NoCredentials, StaticToken, TokenFile
from dray.client.kubeconfig import connection_from_config, in_cluster_connection


def config(user=None, cluster=None, **context):
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", **context}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://host:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }


def write(path, content):
    path.write_text(yaml.safe_dump(content))
    return path


def b64(text):
    return base64.b64encode(text.encode()).decode()


def test_certificates_come_from_data_or_files_next_to_the_kubeconfig(tmp_path):
    (tmp_path / "ca.crt").write_text("CA")
    user = {"client-certificate-data": b64("CERT"), "client-key-data": b64("KEY")}
    path = write(tmp_path / "config", config(user, {"certificate-authority": "ca.crt"}, namespace="mine"))
    connection = load_connection(path)
    assert connection.server == "https://host:6443"
    assert (connection.ca, connection.client_certificate, connection.client_key) == (b"CA", b"CERT", b"KEY")
    assert connection.namespace == "mine"


@pytest.mark.parametrize(
    ("user", "kind", "header"),
    [
        pytest.param({}, NoCredentials, "", id="nothing"),
        pytest.param({"token": "t"}, StaticToken, "Bearer t", id="token"),
        pytest.param({"username": "a", "password": "b"}, BasicAuth, "Basic YTpi", id="password"),
    ],
)
async def test_users(user, kind, header):
    connection = connection_from_config(config(user))
    assert isinstance(connection.credentials, kind)
    assert (await connection.credentials.proof()).authorization == header


async def test_a_token_file_is_read_again_after_a_refusal(tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    credentials = TokenFile(file)
    assert (await credentials.proof()).authorization == "Bearer one"
    file.write_text("two")
    assert (await credentials.proof()).authorization == "Bearer one"
    assert credentials.refused()
    assert (await credentials.proof()).authorization == "Bearer two"


async def test_a_missing_token_file_is_an_error(tmp_path):
    with pytest.raises(CredentialsError, match="token file"):
        await TokenFile(tmp_path / "none").proof()


def test_in_cluster(tmp_path):
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("CA")
    (tmp_path / "namespace").write_text("ns\n")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    connection = in_cluster_connection(environ, tmp_path)
    assert (connection.server, connection.ca, connection.namespace) == ("https://[fd00::1]:6443", b"CA", "ns")
    with pytest.raises(KubeconfigError, match="not inside a cluster"):
        in_cluster_connection({}, tmp_path)


def test_several_files_are_one_and_the_first_wins(tmp_path, monkeypatch):
    first = write(tmp_path / "a", {"current-context": "c", "users": [{"name": "u", "user": {"token": "first"}}]})
    second = write(tmp_path / "b", config({"token": "second"}))
    monkeypatch.setenv("KUBECONFIG", f"{first}{os.pathsep}{second}{os.pathsep}{tmp_path / 'missing'}")
    assert load_connection().credentials._proof.authorization == "Bearer first"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("[1, 2", "not YAML", id="not-yaml"),
        pytest.param("[" * 5000, "not YAML", id="nested-without-end"),
        pytest.param("- a", "not a mapping", id="a-list"),
        pytest.param("{}", "no current-context", id="empty"),
        pytest.param(
            yaml.safe_dump({**config(), "clusters": []}), "cluster 'k' is not among its clusters", id="no-cluster"
        ),
        pytest.param(yaml.safe_dump(config({"client-key-data": "%%"})), "not base64", id="bad-base64"),
        pytest.param(yaml.safe_dump(config({"client-key": "gone"})), "client-key", id="missing-file"),
        pytest.param(yaml.safe_dump(config(None, {"server": "host"})), "is not a URL", id="no-url"),
        pytest.param(yaml.safe_dump(config({"auth-provider": {"name": "gcp"}})), "exec plugin", id="auth-provider"),
        pytest.param(yaml.safe_dump(config({"exec": {"args": []}})), "command is missing", id="exec-no-command"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path, content, message):
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(KubeconfigError, match=message):
        load_connection(path)


def test_a_missing_file_and_an_unknown_context(tmp_path):
    with pytest.raises(KubeconfigError, match="No such file"):
        load_connection(tmp_path / "none")
    with pytest.raises(KubeconfigError, match="context 'x' is not among"):
        load_connection(write(tmp_path / "config", config()), "x")


def test_several_contexts(tmp_path):
    content = config({"token": "t"})
    content["contexts"].append({"name": "other", "context": {"cluster": "k2", "user": "u", "namespace": "n"}})
    content["clusters"].append({"name": "k2", "cluster": {"server": "https://other/k8s/clusters/c-1"}})
    path = write(tmp_path / "config", content)
    assert load_connection(path).server == "https://host:6443"
    other = load_connection(path, "other")
    assert (other.server, other.namespace) == ("https://other/k8s/clusters/c-1", "n")


def test_settings_of_the_cluster(tmp_path):
    cluster = {"tls-server-name": "inner", "proxy-url": "http://proxy:3128", "insecure-skip-tls-verify": True}
    connection = load_connection(write(tmp_path / "config", config(None, cluster)))
    assert (connection.tls_server_name, connection.proxy, connection.verify) == ("inner", "http://proxy:3128", False)


@pytest.mark.parametrize("url", ["socks5://proxy:1080", "proxy:3128"])
def test_a_proxy_that_is_not_spoken_is_refused_at_once(url):
    with pytest.raises(KubeconfigError, match="only http:// and https:// proxies are spoken"):
        connection_from_config(config(None, {"proxy-url": url}))


def test_an_authority_and_no_verification_exclude_each_other(tmp_path):
    from dray.apiserver.security.certificates import Authority
    from dray.client.credentials import Proof
    from dray.client.https import ssl_context

    ca = base64.b64encode(Authority.create("ca").certificate_pem).decode()
    cluster = {"certificate-authority-data": ca, "insecure-skip-tls-verify": True}
    with pytest.raises(KubeconfigError, match="exclude each other"):
        ssl_context(connection_from_config(config(None, cluster)), Proof())


async def test_certificate_files_that_are_renewed_are_read_again(tmp_path, monkeypatch):
    certificate, key = tmp_path / "client.crt", tmp_path / "client.key"
    certificate.write_text("one")
    key.write_text("key one")
    user = {"client-certificate": "client.crt", "client-key": "client.key", "token": "t"}
    credentials = load_connection(write(tmp_path / "config", config(user))).credentials
    proof = await credentials.proof()
    assert (proof.client_certificate, proof.client_key, proof.authorization) == (b"one", b"key one", "Bearer t")
    certificate.write_text("two")
    assert (await credentials.proof()).client_certificate == b"one"
    monkeypatch.setattr("dray.client.credentials.CERTIFICATE_FILE_LIFETIME_S", -1.0)
    assert (await credentials.proof()).client_certificate == b"two"
    certificate.unlink()
    with pytest.raises(CredentialsError, match="client certificate"):
        await credentials.proof()


async def test_a_token_of_a_pod_that_is_renewed_is_read_again(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("one")
    credentials = in_cluster_connection({"KUBERNETES_SERVICE_HOST": "h"}, tmp_path).credentials
    assert (await credentials.proof()).authorization == "Bearer one"
    (tmp_path / "token").write_text("two")
    monkeypatch.setattr("dray.client.credentials.TOKEN_FILE_LIFETIME_S", -1.0)
    assert (await credentials.proof()).authorization == "Bearer two"


def test_inside_a_pod_without_a_kubeconfig(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("t")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr("dray.client.kubeconfig.in_cluster_connection.__defaults__", (os.environ, tmp_path))
    assert load_connection().server == "https://10.0.0.1:443"


# --- exec plugins


def a_plugin(tmp_path, script):
    path = tmp_path / "plugin"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


async def test_an_exec_plugin_is_asked_once_and_again_after_a_refusal(tmp_path):
    count = tmp_path / "count"
    answer = {"kind": "ExecCredential", "status": {"token": "T"}}
    plugin = a_plugin(
        tmp_path, f"echo x >> {count}; echo \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/info; echo '{json.dumps(answer)}'"
    )
    user = {"exec": {"command": str(plugin), "env": [{"name": "A", "value": "B"}], "provideClusterInfo": True}}
    credentials = connection_from_config(config(user)).credentials
    for _ in range(3):
        assert (await credentials.proof()).authorization == "Bearer T"
    assert count.read_text() == "x\n"
    info = json.loads((tmp_path / "info").read_text())
    assert info["spec"]["cluster"]["server"] == "https://host:6443/"
    assert credentials.refused()
    await credentials.proof()
    assert count.read_text() == "x\nx\n"


async def test_an_expired_credential_is_fetched_anew(tmp_path):
    answer = {"status": {"token": "T", "expirationTimestamp": "2001-01-01T00:00:00Z"}}
    count = tmp_path / "count"
    plugin = ExecPlugin(str(a_plugin(tmp_path, f"echo x >> {count}; echo '{json.dumps(answer)}'")))
    await plugin.proof()
    await plugin.proof()
    assert count.read_text() == "x\nx\n"


async def test_what_a_plugin_is_told_of_the_cluster(tmp_path):
    (tmp_path / "ca.crt").write_text("CA")
    a_plugin(tmp_path, f"""echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo '{{"status":{{"token":"T"}}}}'""")
    cluster = {
        "certificate-authority": "ca.crt",
        "tls-server-name": "inner",
        "extensions": [
            {"name": "other", "extension": {"x": 1}},
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "me"}},
        ],
    }
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./plugin",
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": True,
    }
    path = write(tmp_path / "config", config({"exec": plugin}, cluster))
    await load_connection(path).credentials.proof()
    assert json.loads((tmp_path / "info").read_text()) == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://host:6443/",
                "tls-server-name": "inner",
                "certificate-authority-data": b64("CA"),
                "config": {"audience": "me"},
            },
        },
    }


def test_a_plugin_that_must_ask_somebody_is_refused():
    with pytest.raises(KubeconfigError, match="there is nobody"):
        connection_from_config(config({"exec": {"command": "login", "interactiveMode": "Always"}}))


async def test_a_plugin_may_give_a_certificate_until_it_expires(tmp_path):
    status = {"clientCertificateData": "CERT", "clientKeyData": "KEY", "expirationTimestamp": "2999-01-01T00:00:00Z"}
    plugin = ExecPlugin(str(a_plugin(tmp_path, f"echo x >> {tmp_path}/count; echo '{json.dumps({'status': status})}'")))
    for _ in range(2):
        proof = await plugin.proof()
    assert (proof.authorization, proof.client_certificate, proof.client_key) == ("", b"CERT", b"KEY")
    assert (tmp_path / "count").read_text() == "x\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        pytest.param("echo broken >&2; exit 3", "exit code 3: broken", id="fails"),
        pytest.param("echo no json", "not an ExecCredential", id="no-json"),
        pytest.param("echo '{}'", "not an ExecCredential", id="no-status"),
        pytest.param("""echo '{"status":{}}'""", "neither a token nor a certificate", id="empty"),
    ],
)
async def test_plugins_that_fail_say_so(tmp_path, script, message):
    with pytest.raises(CredentialsError, match=message):
        await ExecPlugin(str(a_plugin(tmp_path, script))).proof()


async def test_a_plugin_that_is_not_installed_gives_its_hint():
    with pytest.raises(CredentialsError, match="get it from example"):
        await ExecPlugin("/no/such/plugin", install_hint="get it from example").proof()
