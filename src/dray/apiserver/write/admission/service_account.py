"""A pod runs as a service account of its namespace, and finds the account's token where programs look for it."""

from collections.abc import Callable

from dray.apiserver.request.request_info import Document
from dray.apiserver.safe_get import (
    mapping,
    mappings,
    part,
    text,
)
from dray.apiserver.watch.object_reader import Objects
from dray.apiserver.write.admission.base import (
    CREATE,
    MIRROR_ANNOTATION,
    Admission,
    AdmissionPlugin,
    concerns,
    forbidden,
)

DEFAULT_ACCOUNT = "default"
VOLUME_PREFIX = "kube-api-access-"
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3607
ROOT_CERTIFICATES = "kube-root-ca.crt"


class ServiceAccount(AdmissionPlugin):
    name = "ServiceAccount"
    resources = frozenset({("", "pods")})

    def __init__(self, objects: Objects, new_suffix: Callable[[], str]) -> None:
        self._objects = objects
        self._new_suffix = new_suffix

    async def mutate(self, admission: Admission) -> None:
        if admission.operation != CREATE or not concerns(admission, "", "pods"):
            return
        spec = mapping(admission.document, "spec")
        if MIRROR_ANNOTATION in mapping(admission.document, "metadata", "annotations"):
            self._check_mirror(admission, spec)
            return
        name = text(spec, "serviceAccountName") or DEFAULT_ACCOUNT
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        namespace = admission.attributes.namespace
        account = await self._objects.get("", "serviceaccounts", namespace, name)
        if account is None:
            raise forbidden(
                admission,
                f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found',
            )
        if _wants_token(spec, account):
            self._mount_token(spec)
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = account["imagePullSecrets"]

    def _check_mirror(self, admission: Admission, spec: Document) -> None:
        """A mirror pod shows what already runs on a node: it has no identity in the cluster."""
        if text(spec, "serviceAccountName"):
            raise forbidden(admission, "a mirror pod may not reference service accounts")
        for volume in mappings(spec, "volumes"):
            if volume.get("secret"):
                raise forbidden(admission, "a mirror pod may not reference secrets")
            if any(source.get("serviceAccountToken") for source in mappings(volume, "projected", "sources")):
                raise forbidden(admission, "a mirror pod may not use ServiceAccountToken volume projections")

    def _mount_token(self, spec: Document) -> None:
        name = VOLUME_PREFIX + self._new_suffix()
        mounted = False
        for container in (*mappings(spec, "initContainers"), *mappings(spec, "containers")):
            mounts = mappings(container, "volumeMounts")
            if any(mount.get("mountPath") == MOUNT_PATH for mount in mounts):
                continue
            mounted = True
            mount = {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}
            container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
        if mounted:
            spec["volumes"] = [*(spec.get("volumes") or ()), _token_volume(name)]


def _wants_token(spec: Document, account: Document) -> bool:
    """The pod's word counts first, then the account's."""
    for said in (part(spec, "automountServiceAccountToken"), part(account, "automountServiceAccountToken")):
        if isinstance(said, bool):
            return said
    return True


def _token_volume(name: str) -> Document:
    own_namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "name": name,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": ROOT_CERTIFICATES, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [own_namespace]}},
            ],
            "defaultMode": 420,
        },
    }
