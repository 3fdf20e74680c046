"""The admission plugins for pods and claims.

Pods: ServiceAccount, Priority, DefaultTolerationSeconds and PodResizeValidator.

ClaimStatusAuthorization: allocation and reservations belong to whoever may bind claims; a driver's device status to whoever may speak for that
driver, on the claim's own node or on any. Both are asked on top of the permission to write `resourceclaims/status`.

ClaimFinalizerProtection: the finalizer keeps a claim, and with it the record of its devices, until no pod uses it. Kubernetes lets everyone who
may update the claim remove it; then the claim can be deleted under a running pod, and its devices go to somebody else.
"""

from collections.abc import Callable

from dray.accounting import pod_requests
from dray.api.codec import to_object
from dray.api.core import Pod
from dray.api.names import subdomain_problems
from dray.api.projections import ReferencingPodSpec
from dray.api.quantity import Quantity
from dray.api.resource import CLAIM_FINALIZER
from dray.api.safe_get import mapping, mappings, name_of, part, strings, text
from dray.apiserver import errors
from dray.apiserver.errors import OptionError
from dray.apiserver.request.authorization.authorizer import forbidden_error, secrets_and_config_maps
from dray.apiserver.request.request_info import NODE_NAME_EXTRA, Attributes, Authorizer, Decision, Document, User
from dray.apiserver.watch.kind_cache import ObjectLookup
from dray.apiserver.write.admission.chain import (
    CREATE,
    MIRROR_ANNOTATION,
    UPDATE,
    Admission,
    AdmissionPlugin,
    KindOfWrite,
    concerns,
    forbidden,
    row_of,
)
from dray.apiserver.write.admission.mountable_secrets import MOUNTABLE_SECRETS, forbidden_secret
from dray.features import FeatureGates

DEFAULT_ACCOUNT = "default"
TOKEN_VOLUME_PREFIX = "kube-api-access-"
TOKEN_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_LIFETIME_S = 3607
ROOT_CERTIFICATES = "kube-root-ca.crt"


class ServiceAccount(AdmissionPlugin):
    name = "ServiceAccount"

    def __init__(self, objects: ObjectLookup, new_suffix: Callable[[], str]) -> None:
        self._objects = objects
        self._new_suffix = new_suffix

    def looks_at(self, write: KindOfWrite) -> bool:
        return write in (KindOfWrite(CREATE, "", "pods"), KindOfWrite(UPDATE, "", "pods", "ephemeralcontainers"))

    async def mutate(self, admission: Admission) -> None:
        spec = mapping(admission.document, "spec")
        if admission.operation == UPDATE:
            self._check_secrets(admission, await self._account(admission, text(spec, "serviceAccountName")))
            return
        if MIRROR_ANNOTATION in mapping(admission.document, "metadata", "annotations"):
            self._check_mirror(admission, spec)
            return
        name = text(spec, "serviceAccountName") or DEFAULT_ACCOUNT
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = await self._account(admission, name)
        if _wants_token(spec, account):
            self._mount_token(spec)
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            # A copy: the account is shared by all who look at it.
            spec["imagePullSecrets"] = [dict(secret) for secret in mappings(account, "imagePullSecrets")]
        self._check_secrets(admission, account)

    async def _account(self, admission: Admission, name: str) -> Document:
        namespace = admission.attributes.namespace
        if not name:
            raise forbidden(admission, f"no service account specified for pod {namespace}/{admission.name}")
        account = await self._objects.look("", "serviceaccounts", namespace, name)
        if account is None:
            raise forbidden(
                admission,
                f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found',
            )
        return account

    def _check_secrets(self, admission: Admission, account: Document) -> None:
        if MOUNTABLE_SECRETS in mapping(account, "metadata", "annotations"):
            why = forbidden_secret(account, admission.document)
            if why:
                raise forbidden(admission, why)

    async def validate(self, admission: Admission) -> None:
        """What nodes may refer to has been said by then (`NodeRestriction`)."""
        is_mirror = MIRROR_ANNOTATION in mapping(admission.document, "metadata", "annotations")
        if admission.operation == CREATE and is_mirror:
            spec = to_object(mapping(admission.document, "spec"), ReferencingPodSpec)
            if any(plural == "secrets" for plural, _ in secrets_and_config_maps(spec)):
                raise forbidden(admission, "a mirror pod may not reference secrets")

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
        volumes = (text(volume, "name") for volume in mappings(spec, "volumes"))
        own = next((volume for volume in volumes if volume.startswith(TOKEN_VOLUME_PREFIX)), "")
        name = own or TOKEN_VOLUME_PREFIX + self._new_suffix()
        mounted = False
        for container in (*mappings(spec, "initContainers"), *mappings(spec, "containers")):
            mounts = mappings(container, "volumeMounts")
            if any(mount.get("mountPath") == TOKEN_MOUNT_PATH for mount in mounts):
                continue
            mounted = True
            mount = {"name": name, "readOnly": True, "mountPath": TOKEN_MOUNT_PATH}
            container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
        if mounted and not own:
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
                {"serviceAccountToken": {"expirationSeconds": TOKEN_LIFETIME_S, "path": "token"}},
                {"configMap": {"name": ROOT_CERTIFICATES, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [own_namespace]}},
            ],
            "defaultMode": 420,
        },
    }


DEFAULT_PREEMPTION_POLICY = "PreemptLowerPriority"
SCHEDULING_GROUP = "scheduling.k8s.io"
PODS, CLASSES, GROUPS = ("", "pods", ""), (SCHEDULING_GROUP, "priorityclasses", ""), (SCHEDULING_GROUP, "podgroups", "")
# Pods of these classes preempt everything else, so they are not for tenants.
SYSTEM_CLASS_PREFIX = "system-"
SYSTEM_NAMESPACE = "kube-system"


class Priority(AdmissionPlugin):
    name = "Priority"

    def __init__(self, objects: ObjectLookup) -> None:
        self._objects = objects

    def looks_at(self, write: KindOfWrite) -> bool:
        kind = (write.group, write.resource, write.subresource)
        if kind == GROUPS:
            return write.operation == CREATE
        return kind in (PODS, CLASSES) and write.operation in (CREATE, UPDATE)

    async def mutate(self, admission: Admission) -> None:
        if concerns(admission, *PODS):
            if admission.operation == CREATE:
                await self._set_priority(admission)
            else:
                _keep_priority(admission)
        elif concerns(admission, *GROUPS):
            await self._set_priority_of_group(admission)

    async def validate(self, admission: Admission) -> None:
        """Only one class can be what pods without a class get."""
        if not concerns(admission, *CLASSES):
            return
        if part(admission.document, "globalDefault") is not True:
            return
        other = await self._default_class()
        if other and name_of(other) != admission.name:
            why = f"PriorityClass {name_of(other)} is already marked as default. Only one default can exist"
            raise forbidden(admission, why)

    async def _set_priority(self, admission: Admission) -> None:
        spec = mapping(admission.document, "spec")
        found = await self._class_of(admission, spec)
        value = part(found, "value")
        priority = value if isinstance(value, int) else 0
        policy = text(found, "preemptionPolicy") or DEFAULT_PREEMPTION_POLICY
        given, given_policy = spec.get("priority"), spec.get("preemptionPolicy")
        if given is not None and given != priority:
            raise forbidden(
                admission,
                f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
                f"controller computed {priority} from the given PriorityClass name",
            )
        if given_policy is not None and given_policy != policy:
            raise forbidden(
                admission,
                f"the string value of PreemptionPolicy ({given_policy}) must not be provided in pod spec; priority "
                f"admission controller computed {policy} from the given PriorityClass name",
            )
        spec["priority"] = priority
        spec["preemptionPolicy"] = policy

    async def _set_priority_of_group(self, admission: Admission) -> None:
        spec = mapping(admission.document, "spec")
        value = part(await self._class_of(admission, spec), "value")
        priority, given = value if isinstance(value, int) else 0, spec.get("priority")
        if given is not None and given != priority:
            raise forbidden(
                admission,
                f"priority set in the pod group ({given}) must match the priority computed ({priority}) based on the "
                "priority class set in the spec",
            )
        if admission.document is not None:
            admission.document["spec"] = {**spec, "priority": priority}

    async def _class_of(self, admission: Admission, spec: Document) -> Document | None:
        name = text(spec, "priorityClassName")
        if not name:
            found = await self._default_class()
            if found:
                spec["priorityClassName"] = name_of(found)
            return found
        if name.startswith(SYSTEM_CLASS_PREFIX) and not await self._is_granted(name, admission.attributes.namespace):
            raise forbidden(
                admission,
                f"PriorityClass {name} is only for pods in the namespace {SYSTEM_NAMESPACE}, and in namespaces with a "
                "ResourceQuota whose scopeSelector names it",
            )
        found = await self._objects.get(SCHEDULING_GROUP, "priorityclasses", "", name)
        if found is None:
            raise forbidden(admission, f"no PriorityClass with name {name} was found")
        return found

    async def _is_granted(self, name: str, namespace: str) -> bool:
        """An administrator grants a class to a namespace by a quota for the pods of this class."""
        if namespace == SYSTEM_NAMESPACE:
            return True
        return any(_is_for_class(quota, name) for quota in await self._objects.list("", "resourcequotas", namespace))

    async def _default_class(self) -> Document | None:
        """The global default with the lowest value, should there be several."""
        found = [
            entry
            for entry in await self._objects.look_at_all(SCHEDULING_GROUP, "priorityclasses")
            if entry.get("globalDefault")
        ]
        return min(found, key=lambda entry: entry.get("value") or 0, default=None)


def _is_for_class(quota: Document, name: str) -> bool:
    return any(
        each.get("scopeName") == "PriorityClass" and each.get("operator") == "In" and name in (each.get("values") or ())
        for each in mappings(quota, "spec", "scopeSelector", "matchExpressions")
    )


def _keep_priority(admission: Admission) -> None:
    """A pod that is replaced need not say what the server filled in."""
    spec, old = mapping(admission.document, "spec"), mapping(admission.old, "spec")
    for field in ("priority", "preemptionPolicy"):
        if spec and spec.get(field) is None and old.get(field) is not None:
            spec[field] = old[field]


DEFAULT_TOLERATION_S = 300
DEFAULT_TOLERATED_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class DefaultTolerationSeconds(AdmissionPlugin):
    name = "DefaultTolerationSeconds"

    def looks_at(self, write: KindOfWrite) -> bool:
        return write in (KindOfWrite(CREATE, "", "pods"), KindOfWrite(UPDATE, "", "pods"))

    async def mutate(self, admission: Admission) -> None:
        spec = mapping(admission.document, "spec")
        tolerations = mappings(spec, "tolerations")
        missing = [
            taint for taint in DEFAULT_TOLERATED_TAINTS if not any(_tolerates(entry, taint) for entry in tolerations)
        ]
        if spec and missing:
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *map(_toleration, missing)]


def _tolerates(toleration: Document, taint: str) -> bool:
    return toleration.get("key") in (taint, "", None) and toleration.get("effect") in ("NoExecute", "", None)


def _toleration(taint: str) -> Document:
    return {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": DEFAULT_TOLERATION_S}


RESIZABLE = ("cpu", "memory")


class PodResizeValidator(AdmissionPlugin):
    name = "PodResizeValidator"

    def __init__(self, objects: ObjectLookup) -> None:
        self._objects = objects

    def looks_at(self, write: KindOfWrite) -> bool:
        return write == KindOfWrite(UPDATE, "", "pods", "resize")

    async def validate(self, admission: Admission) -> None:
        assert admission.document is not None
        assert admission.old is not None
        node_name = text(admission.document, "spec", "nodeName")
        node = await self._objects.get("", "nodes", "", node_name) if node_name else None
        if node is None:
            return
        wanted = pod_requests(to_object(admission.document, Pod))
        before = pod_requests(to_object(admission.old, Pod))
        allocatable = mapping(node, "status", "allocatable")
        for name in RESIZABLE:
            if name not in wanted or name not in allocatable or wanted[name] == before.get(name):
                continue
            if wanted[name] > (most := Quantity.parse(allocatable[name])):
                why = f"Node didn't have enough capacity: {name}, requested: {wanted[name]}, capacity: {most}"
                cause = {"reason": "NodeCapacity", "message": why}
                raise errors.forbidden(row_of(admission), admission.name, why, [cause])


GROUP = "resource.k8s.io"
GATE = "DRAResourceClaimGranularStatusAuthorization"


class ClaimStatusAuthorization(AdmissionPlugin):
    name = "DRAResourceClaimGranularStatusAuthorization"

    def __init__(self, authorizer: Authorizer, gates: FeatureGates) -> None:
        self._authorizer = authorizer
        self._is_on = gates.enabled(GATE)

    def looks_at(self, write: KindOfWrite) -> bool:
        return self._is_on and write == KindOfWrite(UPDATE, GROUP, "resourceclaims", "status")

    async def validate(self, admission: Admission) -> None:
        found = await self._binding_problem(admission) or await self._driver_problem(admission)
        if found:
            raise errors.invalid_object(row_of(admission), admission.name, [found])

    async def _binding_problem(self, admission: Admission) -> OptionError | None:
        new, old = admission.document, admission.old
        same = all(
            (part(new, "status", field) or None) == (part(old, "status", field) or None)
            for field in ("allocation", "reservedFor")
        )
        if same:
            return None
        verb = _verb(admission.attributes)
        question = Attributes(admission.user, verb, GROUP, "*", "resourceclaims", "binding")
        decision = await self._authorizer.authorize(question)
        if decision.allowed:
            return None
        why = (
            "Forbidden: changing status.allocation or status.reservedFor requires "
            f'resource="resourceclaims/binding", verb="{verb}" permission: {_refused(question, decision)}'
        )
        return OptionError("Forbidden", "status.allocation", why)

    async def _driver_problem(self, admission: Admission) -> OptionError | None:
        new, old = admission.document, admission.old
        if part(new, "status", "allocation") is None:
            return None
        for driver in sorted(_changed_drivers(new, old)):
            problem = await self._one_driver(admission, driver, _claim_node(new))
            if problem:
                return problem
        return None

    async def _one_driver(self, admission: Admission, driver: str, node: str) -> OptionError | None:
        verb = _verb(admission.attributes)
        verbs = [f"arbitrary-node:{verb}"]
        if _is_associated(admission.user, node):
            verbs.insert(0, f"associated-node:{verb}")
        refused = ""
        for tried in verbs:
            question = Attributes(
                admission.user,
                tried,
                GROUP,
                "*",
                "resourceclaims",
                "driver",
                admission.attributes.namespace,
                driver,
            )
            decision = await self._authorizer.authorize(question)
            if decision.allowed:
                return None
            refused = _refused(question, decision)
        why = (
            'Forbidden: changing status.devices requires resource="resourceclaims/driver", '
            f'verb="[associated-node:{verb} arbitrary-node:{verb}]" permission: {refused}'
        )
        return OptionError("Forbidden", "status.devices", why)


def _verb(attributes: Attributes) -> str:
    return "patch" if attributes.verb == "patch" else "update"


def _refused(question: Attributes, decision: Decision) -> str:
    return forbidden_error(question, decision).message


def _changed_drivers(new: Document | None, old: Document | None) -> set[str]:
    """Drivers with a device status that was added, changed or removed."""
    before, after = _statuses(old), _statuses(new)
    return {key[0] for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _statuses(claim: Document | None) -> dict[tuple[str, ...], Document]:
    fields = ("driver", "pool", "device", "shareID")
    return {tuple(text(entry, field) for field in fields): entry for entry in mappings(claim, "status", "devices")}


def _is_associated(user: User, node: str) -> bool:
    """Whether the user is a service account that runs on the claim's node."""
    names = user.extra.get(NODE_NAME_EXTRA, ())
    return bool(
        user.service_account and node and len(names) == 1 and not subdomain_problems(names[0]) and names[0] == node
    )


def _claim_node(claim: Document | None) -> str:
    """The one node the claim is for; empty unless the allocation says so in the one accepted form."""
    terms = mappings(claim, "status", "allocation", "nodeSelector", "nodeSelectorTerms")
    if len(terms) != 1 or terms[0].get("matchExpressions"):
        return ""
    fields = mappings(terms[0], "matchFields")
    if len(fields) != 1:
        return ""
    values = fields[0].get("values")
    is_name = fields[0].get("key") == "metadata.name" and fields[0].get("operator") == "In"
    return values[0] if is_name and isinstance(values, list) and len(values) == 1 and isinstance(values[0], str) else ""


class ClaimFinalizerProtection(AdmissionPlugin):
    name = "ClaimFinalizerProtection"
    resources = frozenset({("resource.k8s.io", "resourceclaims")})

    def looks_at(self, write: KindOfWrite) -> bool:
        return super().looks_at(write) and write.operation == UPDATE

    async def validate(self, admission: Admission) -> None:
        if not mappings(admission.document, "status", "reservedFor"):
            return
        before, after = (strings(claim, "metadata", "finalizers") for claim in (admission.old, admission.document))
        if CLAIM_FINALIZER in before and CLAIM_FINALIZER not in after:
            why = f"the finalizer {CLAIM_FINALIZER} cannot be removed while status.reservedFor names users of the claim"
            raise forbidden(admission, why)
