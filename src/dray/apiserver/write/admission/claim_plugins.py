"""The admission plugins for claims: who may change which part of a claim's status, and when its finalizer stays.

ClaimStatusAuthorization: allocation and reservations belong to whoever may bind claims; a driver's device status to whoever may speak for that
driver, on the claim's own node or on any. Both are asked on top of the permission to write `resourceclaims/status`.

ClaimFinalizerProtection: the finalizer keeps a claim, and with it the record of its devices, until no pod uses it. Kubernetes lets everyone who
may update the claim remove it; then the claim can be deleted under a running pod, and its devices go to somebody else.
"""

from dray.api.names import subdomain_problems
from dray.api.resource import CLAIM_FINALIZER
from dray.api.safe_get import mappings, part, strings, text
from dray.apiserver import errors
from dray.apiserver.errors import OptionError
from dray.apiserver.request.authorization.authorizer import forbidden_error
from dray.apiserver.request.request_info import NODE_NAME_EXTRA, Attributes, Authorizer, Decision, Document, User
from dray.apiserver.write.admission.chain import UPDATE, Admission, AdmissionPlugin, concerns, forbidden, row_of
from dray.features import FeatureGates

GROUP = "resource.k8s.io"
GATE = "DRAResourceClaimGranularStatusAuthorization"


class ClaimStatusAuthorization(AdmissionPlugin):
    name = "DRAResourceClaimGranularStatusAuthorization"
    resources = frozenset({(GROUP, "resourceclaims")})

    def __init__(self, authorizer: Authorizer, gates: FeatureGates) -> None:
        self._authorizer = authorizer
        self._is_on = gates.enabled(GATE)

    async def validate(self, admission: Admission) -> None:
        if not self._is_on or admission.operation != UPDATE or admission.document is None:
            return
        if not concerns(admission, GROUP, "resourceclaims", "status"):
            return
        found = await self._binding_problem(admission) or await self._driver_problem(admission)
        if found:
            raise errors.invalid_object(row_of(admission.attributes), admission.name, [found])

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

    async def validate(self, admission: Admission) -> None:
        if admission.operation != UPDATE or not mappings(admission.document, "status", "reservedFor"):
            return
        before, after = (strings(claim, "metadata", "finalizers") for claim in (admission.old, admission.document))
        if CLAIM_FINALIZER in before and CLAIM_FINALIZER not in after:
            why = f"the finalizer {CLAIM_FINALIZER} cannot be removed while status.reservedFor names users of the claim"
            raise forbidden(admission, why)
