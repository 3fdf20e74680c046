"""Nobody hands out permissions they do not hold.

Writing a role needs every permission in it (or the verb `escalate` on it); writing a binding needs every permission of the role
it refers to (or the verb `bind` on that role).
"""

import msgspec

from dray.api.safe_get import (
    mapping,
    part,
    text,
)
from dray.apiserver import errors
from dray.apiserver.core import in_thread_if_large
from dray.apiserver.request.authorization.rbac import (
    GROUP,
    PolicyRule,
    RbacIndex,
    compact,
    permission_count,
    uncovered,
)
from dray.apiserver.request.request_info import MASTERS, Attributes, Authorizer, User
from dray.apiserver.write.admission.chain import CREATE, UPDATE, Admission, AdmissionPlugin, row_of

ROLES = frozenset({"roles", "clusterroles"})
# A check costs each of them times the rules the user holds.
MOST_PERMISSIONS = 10_000
# A rule in JSON, about.
RULE_BYTES = 64
MOST_NAMED = 200
BINDINGS = frozenset({"rolebindings", "clusterrolebindings"})


class RbacEscalation(AdmissionPlugin):
    name = "RBACEscalation"
    resources = frozenset((GROUP, plural) for plural in ROLES | BINDINGS)

    def __init__(self, rbac: RbacIndex, authorizer: Authorizer) -> None:
        self._rbac = rbac
        self._authorizer = authorizer

    async def validate(self, admission: Admission) -> None:
        attributes = admission.attributes
        if attributes.group != GROUP or admission.operation not in (CREATE, UPDATE) or admission.document is None:
            return
        if MASTERS in attributes.user.groups:
            return
        if attributes.resource in ROLES:
            await self._check_role(admission)
        elif attributes.resource in BINDINGS:
            await self._check_binding(admission)

    async def _check_role(self, admission: Admission) -> None:
        document, old = admission.document, admission.old
        same = old is not None and all(
            (part(document, field) or None) == (part(old, field) or None) for field in ("rules", "aggregationRule")
        )
        if same or await self._may(admission, "escalate", admission.attributes.resource, admission.name):
            return
        if part(document, "aggregationRule"):
            # The rules will be whatever other roles hold: only who holds everything may ask for that.
            wanted = [PolicyRule(("*",), ("*",), ("*",)), PolicyRule(("*",), non_resource_urls=("*",))]
            await self._check_held(admission, wanted)
        size = len(part(document, "rules") or ()) * RULE_BYTES
        await self._check_held(admission, await in_thread_if_large(size, lambda: _rules(document)))

    async def _check_binding(self, admission: Admission) -> None:
        document, old = admission.document, admission.old
        if old is not None and (part(document, "subjects") or None) == (part(old, "subjects") or None):
            return
        reference = mapping(document, "roleRef")
        kind, name = text(reference, "kind"), text(reference, "name")
        plural = "clusterroles" if kind == "ClusterRole" else "roles"
        if await self._may(admission, "bind", plural, name):
            return
        rules = self._rbac.role_rules("" if kind == "ClusterRole" else admission.attributes.namespace, name)
        if rules is None:
            raise errors.ApiError(
                404,
                "NotFound",
                f'{plural}.{GROUP} "{name}" not found',
                {"name": name, "group": GROUP, "kind": plural},
            )
        await self._check_held(admission, rules)

    async def _check_held(self, admission: Admission, wanted: "tuple[PolicyRule, ...] | list[PolicyRule]") -> None:
        count = len(wanted) if len(wanted) > MOST_PERMISSIONS else permission_count(wanted)
        if count > MOST_PERMISSIONS:
            why = f"the rules spell out {count} permissions, at most {MOST_PERMISSIONS} can be checked; split the role or use *"
            raise errors.forbidden(row_of(admission), admission.name, why)
        held = self._rbac.rules_for(admission.user, admission.attributes.namespace)
        missing = await in_thread_if_large(count * len(held) // 4, lambda: compact(uncovered(wanted, held)))
        if missing:
            lines = "\n".join(rule.described() for rule in missing[:MOST_NAMED])
            if len(missing) > MOST_NAMED:
                lines += f"\n... and {len(missing) - MOST_NAMED} more"
            why = (
                f'user "{admission.user.name}" (groups=[{_groups(admission.user)}]) is attempting to grant RBAC '
                f"permissions not currently held:\n{lines}"
            )
            raise errors.forbidden(row_of(admission), admission.name, why)

    async def _may(self, admission: Admission, verb: str, plural: str, name: str) -> bool:
        namespace = admission.attributes.namespace
        question = Attributes(admission.user, verb, GROUP, "*", plural, "", namespace, name)
        return (await self._authorizer.authorize(question)).allowed


def _rules(document: object) -> list[PolicyRule]:
    try:
        return msgspec.convert(part(document, "rules") or [], list[PolicyRule])
    except msgspec.ValidationError as error:
        raise errors.bad_request(f"rules: {error}") from None


def _groups(user: User) -> str:
    return " ".join(f'"{group}"' for group in user.groups)
