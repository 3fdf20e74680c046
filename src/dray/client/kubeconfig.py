"""Reads the server's address and the user's credentials from a kubeconfig, or from the pod we run in."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dray.client.credentials import (
    BasicAuth,
    CertificateFiles,
    ClientCredentials,
    ExecPlugin,
    NoCredentials,
    StaticToken,
    TokenFile,
)
from dray.client.errors import KubeconfigError

PROXY_SCHEMES = ("http://", "https://")
SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything needed to talk to one API server as one user. Certificates are PEM bytes."""

    server: str
    credentials: ClientCredentials
    ca: bytes | None = None
    verify: bool = True
    tls_server_name: str = ""
    client_certificate: bytes | None = None
    client_key: bytes | None = None
    proxy: str = ""
    namespace: str = "default"


# The errors of reading a list where a mapping should be; the file comes from a user, so they become an error message.
_MISSHAPEN = (TypeError, KeyError, AttributeError, ValueError, RecursionError)


def load_connection(kubeconfig: str | os.PathLike[str] | None = None, context: str = "") -> Connection:
    """The named file, else $KUBECONFIG, else ~/.kube/config, else the pod we run in."""
    paths = _kubeconfig_paths(kubeconfig)
    if paths:
        try:
            return connection_from_config(_merged(paths), context)
        except _MISSHAPEN as error:
            where = ", ".join(map(str, paths))
            raise KubeconfigError(f"kubeconfig {where}: a field is not of the right kind: {error!r}") from None
    if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster_connection()
    raise KubeconfigError("no kubeconfig: give a file, set KUBECONFIG, or run inside a cluster")


def in_cluster_connection(environ: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT_DIR) -> Connection:
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca = directory / "token", directory / "ca.crt"
    if not host or not token.is_file():
        raise KubeconfigError(f"not inside a cluster: no KUBERNETES_SERVICE_HOST or no {token}")
    namespace = directory / "namespace"
    return Connection(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        credentials=TokenFile(token),
        ca=ca.read_bytes() if ca.is_file() else None,
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
    )


def connection_from_config(config: Mapping[str, Any], context: str = "") -> Connection:
    """The cluster and user of one context. File references must be absolute already."""
    context_name = context or config.get("current-context") or ""
    if not context_name:
        raise KubeconfigError("kubeconfig: no current-context, and none was asked for")
    chosen = _entry(config, "contexts", "context", context_name)
    cluster = _entry(config, "clusters", "cluster", chosen.get("cluster", ""))
    user = _entry(config, "users", "user", chosen["user"]) if chosen.get("user") else {}
    server = str(cluster.get("server", ""))
    if not server.startswith(("https://", "http://")):
        raise KubeconfigError(f"kubeconfig: cluster {chosen.get('cluster')!r}: server {server!r} is not a URL")
    return Connection(
        server=server.rstrip("/"),
        credentials=_credentials(user, cluster),
        ca=_pem(cluster, "certificate-authority"),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        tls_server_name=str(cluster.get("tls-server-name", "")),
        client_certificate=_pem(user, "client-certificate"),
        client_key=_pem(user, "client-key"),
        proxy=_proxy(str(cluster.get("proxy-url") or "")),
        namespace=str(chosen.get("namespace") or "default"),
    )


def _credentials(user: Mapping[str, Any], cluster: Mapping[str, Any]) -> ClientCredentials:
    found = _proofs(user, cluster)
    certificate, key = user.get("client-certificate"), user.get("client-key")
    has_data = user.get("client-certificate-data") or user.get("client-key-data")
    return CertificateFiles(Path(certificate), Path(key), found) if certificate and key and not has_data else found


def _proofs(user: Mapping[str, Any], cluster: Mapping[str, Any]) -> ClientCredentials:
    if user.get("exec"):
        return ExecPlugin.from_config(user["exec"], cluster)
    if user.get("tokenFile"):
        return TokenFile(Path(user["tokenFile"]))
    if user.get("token"):
        return StaticToken(str(user["token"]))
    if user.get("username"):
        return BasicAuth(str(user["username"]), str(user.get("password", "")))
    if user.get("auth-provider"):
        raise KubeconfigError("kubeconfig: auth-provider users are gone from Kubernetes: use an exec plugin")
    return NoCredentials()


def _proxy(url: str) -> str:
    if url and not url.startswith(PROXY_SCHEMES):
        raise KubeconfigError(f"kubeconfig: proxy-url {url!r}: only {' and '.join(PROXY_SCHEMES)} proxies are spoken")
    return url


def _pem(entry: Mapping[str, Any], field: str) -> bytes | None:
    data = entry.get(f"{field}-data")
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            raise KubeconfigError(f"kubeconfig: {field}-data is not base64: {error}") from None
    path = entry.get(field)
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise KubeconfigError(f"kubeconfig: {field}: {error}") from None


def _entry(config: Mapping[str, Any], group: str, field: str, name: str) -> Mapping[str, Any]:
    for entry in config.get(group) or ():
        if isinstance(entry, Mapping) and entry.get("name") == name:
            found = entry.get(field)
            return found if isinstance(found, Mapping) else {}
    raise KubeconfigError(f"kubeconfig: {field} {name!r} is not among its {group}")


def _kubeconfig_paths(kubeconfig: str | os.PathLike[str] | None) -> list[Path]:
    if kubeconfig is not None:
        return [Path(kubeconfig).expanduser()]
    listed = [Path(text) for text in os.environ.get("KUBECONFIG", "").split(os.pathsep) if text]
    if listed:
        present = [path for path in listed if path.is_file()]
        if not present:
            raise KubeconfigError(f"kubeconfig: no such file: {os.environ['KUBECONFIG']}")
        return present
    home = Path("~/.kube/config").expanduser()
    return [home] if home.is_file() else []


def _merged(paths: Sequence[Path]) -> dict[str, Any]:
    """Several files as one: the first to name an entry, or the current context, wins."""
    merged: dict[str, Any] = {}
    for path in paths:
        config = _read(path)
        for group in ("clusters", "contexts", "users"):
            merged.setdefault(group, []).extend(_absolute(config.get(group), path.parent))
        merged["current-context"] = merged.get("current-context") or config.get("current-context", "")
    return merged


def _read(path: Path) -> Mapping[str, Any]:
    try:
        config = yaml.safe_load(path.read_text())
    except OSError as error:
        raise KubeconfigError(f"kubeconfig: {error}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise KubeconfigError(f"kubeconfig {path}: not YAML: {error}") from None
    if not isinstance(config, Mapping):
        raise KubeconfigError(f"kubeconfig {path}: not a mapping")
    return config


FILE_FIELDS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def _absolute(entries: Any, directory: Path) -> list[dict[str, Any]]:
    """File references are relative to the kubeconfig that holds them."""
    result = []
    for entry in entries or ():
        if not isinstance(entry, Mapping):
            continue
        copy = dict(entry)
        for part in ("cluster", "user"):
            if isinstance(copy.get(part), Mapping):
                fields = dict(copy[part])
                for field in FILE_FIELDS:
                    if fields.get(field):
                        fields[field] = str(directory / str(fields[field]))
                copy[part] = _with_plugin_path(fields, directory)
        result.append(copy)
    return result


def _with_plugin_path(user: dict[str, Any], directory: Path) -> dict[str, Any]:
    """A plugin with a slash in its name is a file like the others; one without is looked for in PATH."""
    plugin = user.get("exec")
    if not isinstance(plugin, Mapping):
        return user
    command = plugin.get("command")
    if not isinstance(command, str) or os.sep not in command:
        return user
    return {**user, "exec": {**plugin, "command": str(directory / command)}}
