"""Rules for the spec of ResourceClaim and ResourceClaimTemplate. Rules for the claim's status are in `claim_status`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dray.api import names
from dray.api.quantity import Quantity
from dray.api.resource import ADMIN_ACCESS_LABEL
from dray.validation.equality import same
from dray.validation.errors import Document, Errors, ValidationContext
from dray.validation.expressions import check_derived, check_selector, is_too_costly
from dray.validation.formats import (
    IMMUTABLE,
    RequestNames,
    check_enum,
    check_full_name,
    check_label,
    check_opaque,
    check_qualified,
    check_references,
    check_unique,
    key_path,
)
from dray.validation.metadata import check_annotations, check_labels

MAX_REQUESTS = 32
MAX_SUBREQUESTS = 8
MAX_SELECTORS = 32
MAX_CONSTRAINTS = 32
MAX_CONFIGS = 32
MAX_DERIVED = 32

ALLOCATION_MODES = ("All", "ExactCount")
TOLERATION_OPERATORS = ("Equal", "Exists")
TAINT_EFFECTS = ("NoExecute", "NoSchedule", "None")
NEEDS_ADMIN_LABEL = (
    f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
)


def check_claim(document: Document, context: ValidationContext, errors: Errors) -> None:
    check_claim_spec(document.get("spec") or {}, "spec", context, errors)


def check_requested_admin_access(document: Document, context: ValidationContext, errors: Errors) -> None:
    """Checks new claims and templates; other kinds have no such rule."""
    spec = document.get("spec") or {}
    if document.get("kind") == "ResourceClaimTemplate":
        spec = spec.get("spec") or {}
    elif document.get("kind") != "ResourceClaim":
        return
    check_admin_access(_admin_requests(spec), context, errors)


def check_claim_update(new: Document, old: Document, errors: Errors) -> None:
    if not same(new.get("spec"), old.get("spec")):
        errors.invalid("spec", None, IMMUTABLE, declarative=True)


def check_template(document: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    spec = document.get("spec") or {}
    inner = spec.get("spec") or {}
    _check_template_metadata(spec.get("metadata") or {}, "spec.metadata", errors)
    check_claim_spec(inner, "spec.spec", context, errors)
    if old is not None and not same(spec, old.get("spec")):
        errors.invalid("spec", go_template_spec(spec), IMMUTABLE)


_TEMPLATE_METADATA = frozenset(("labels", "annotations"))


def _check_template_metadata(meta: Document, path: str, errors: Errors) -> None:
    """A template may only set labels and annotations of its claims."""
    check_annotations(meta.get("annotations") or {}, f"{path}.annotations", errors)
    check_labels(meta.get("labels") or {}, f"{path}.labels", errors)
    for field, value in meta.items():
        if field not in _TEMPLATE_METADATA and _is_set(field, value):
            errors.forbidden(f"{path}.{'uID' if field == 'uid' else field}", "cannot be set")


def _is_set(field: str, value: object) -> bool:
    """A grace period of 0 is one; any other empty value counts as absent."""
    return value is not None if field == "deletionGracePeriodSeconds" else value not in (None, "", 0, [], {})


def check_admin_access(paths: Iterable[str], context: ValidationContext, errors: Errors) -> None:
    """The first use of admin access needs a namespace that was labelled for it; further ones are not told."""
    path = next(iter(paths), None)
    if path is None:
        return
    if context.namespace_labels is None:
        errors.internal(path, "could not retrieve namespace")
    elif context.namespace_labels.get(ADMIN_ACCESS_LABEL) != "true":
        errors.forbidden(path, NEEDS_ADMIN_LABEL)


def _admin_requests(spec: Document) -> Iterable[str]:
    for i, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            yield f"spec.devices.requests[{i}].adminAccess"


def check_claim_spec(spec: Document, path: str, context: ValidationContext, errors: Errors) -> None:
    devices = spec.get("devices") or {}
    _ClaimSpec(devices, f"{path}.devices", context, errors).check()


class _ClaimSpec:
    """The requests, constraints and configurations of one claim."""

    def __init__(self, devices: Document, path: str, context: ValidationContext, errors: Errors) -> None:
        self.requests: list[Document] = devices.get("requests") or []
        self.constraints: list[Document] = devices.get("constraints") or []
        self.configs: list[Document] = devices.get("config") or []
        self.known = RequestNames(self.requests)
        self.path, self.context, self.errors = path, context, errors
        self.derived_cost = 0

    def check(self) -> None:
        self._check_requests()
        self._check_constraints()
        check_configs(self.configs, MAX_CONFIGS, self.known, f"{self.path}.config", self.errors)
        if self.derived_cost and is_too_costly(self.derived_cost):
            detail = "too complex, total cost of derived attribute CEL expressions in the claim exceeds cost limit"
            self.errors.forbidden(self.path, detail)

    def _check_requests(self) -> None:
        path = f"{self.path}.requests"
        if len(self.requests) > MAX_REQUESTS:
            self.errors.too_many(path, len(self.requests), MAX_REQUESTS, declarative=True)
            return
        check_unique(self.requests, lambda r: r.get("name") or "", path, self.errors, declarative=True)
        for i, request in enumerate(self.requests):
            self._check_request(request, f"{path}[{i}]")

    def _check_request(self, request: Document, path: str) -> None:
        name = request.get("name") or ""
        check_label(name, f"{path}.name", self.errors)
        exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
        rule = "exactly one of `exactly` or `firstAvailable` is required"
        if exactly is None and not alternatives:
            self.errors.required(path, rule)
        elif exactly is not None and alternatives:
            self.errors.invalid(path, None, f"{rule}, but multiple fields are set")
            self._check_by_generated_rules(exactly, alternatives, name, path)
        elif exactly is not None:
            check_class_name(exactly.get("deviceClassName") or "", f"{path}.exactly.deviceClassName", self.errors)
            self._check_ask(exactly, (name,), f"{path}.exactly")
        else:
            self._check_alternatives(alternatives, name, f"{path}.firstAvailable")

    def _check_by_generated_rules(self, exactly: Document, alternatives: list[Document], name: str, path: str) -> None:
        """Only the generated rules look into a request that sets both; their findings are reported."""
        before, cost = len(self.errors), self.derived_cost
        self._check_ask(exactly, (name,), f"{path}.exactly")
        self._check_alternatives(alternatives, name, f"{path}.firstAvailable")
        self.errors.drop_handwritten(before)
        self.derived_cost = cost

    def _check_alternatives(self, alternatives: list[Document], parent: str, path: str) -> None:
        if len(alternatives) > MAX_SUBREQUESTS:
            self.errors.too_many(path, len(alternatives), MAX_SUBREQUESTS, declarative=True)
            return
        check_unique(alternatives, lambda r: r.get("name") or "", path, self.errors, declarative=True)
        for i, alternative in enumerate(alternatives):
            name = alternative.get("name") or ""
            check_label(name, f"{path}[{i}].name", self.errors)
            check_class_name(
                alternative.get("deviceClassName") or "", f"{path}[{i}].deviceClassName", self.errors, declarative=True
            )
            self._check_ask(alternative, (parent, f"{parent}/{name}"), f"{path}[{i}]")

    def _check_ask(self, ask: Document, called: tuple[str, ...], path: str) -> None:
        """`called`: the names under which constraints may refer to it."""
        check_selectors(ask.get("selectors") or [], f"{path}.selectors", self.context, self.errors)
        self._check_count(ask, path)
        check_tolerations(ask.get("tolerations") or [], f"{path}.tolerations", self.errors)
        if limits := (ask.get("capacity") or {}).get("limits"):
            check_limits(limits, ask["capacity"].get("requests") or {}, f"{path}.capacity.limits", self.errors)
        if ask.get("derivedAttributes"):
            self._check_derived(ask["derivedAttributes"], called, f"{path}.derivedAttributes")

    def _check_count(self, ask: Document, path: str) -> None:
        mode, count = ask.get("allocationMode") or "", ask.get("count") or 0
        if mode == "All":
            if count:
                detail = "must not be specified when allocationMode is 'All'"
                self.errors.invalid(f"{path}.count", count, detail)
        elif mode == "ExactCount":
            if count <= 0:
                self.errors.invalid(f"{path}.count", count, "must be greater than zero")
        else:
            # The generated rule takes an empty mode for an absent one; only the handwritten rule refuses it.
            self.errors.not_supported(f"{path}.allocationMode", mode, ALLOCATION_MODES, declarative=bool(mode))

    def _check_derived(self, derived: list[Document], called: tuple[str, ...], path: str) -> None:
        # Too many of them silence the generated rules about each one, but not the handwritten rules.
        too_many = len(derived) > MAX_DERIVED
        if too_many:
            self.errors.too_many(path, len(derived), MAX_DERIVED, declarative=True)
        check_unique(derived, lambda d: d.get("name") or "", path, self.errors, declarative=False)
        for i, attribute in enumerate(derived):
            here = f"{path}[{i}]"
            name, expression = attribute.get("name") or "", attribute.get("expression") or ""
            if not too_many:
                self._check_derived_fields(name, expression, here)
            if name:
                self._check_used(name, called, f"{here}.name")
            if expression:
                gates = self.context.gates
                self.derived_cost += check_derived(expression, f"{here}.expression", gates, self.errors)

    def _check_derived_fields(self, name: str, expression: str, path: str) -> None:
        if not name:
            self.errors.required(f"{path}.name", declarative=True)
        else:
            check_full_name(name, f"{path}.name", self.errors)
        if not expression:
            self.errors.required(f"{path}.expression", declarative=True)

    def _check_used(self, name: str, called: tuple[str, ...], path: str) -> None:
        for constraint in self.constraints:
            targets = constraint.get("requests") or []
            compared = constraint.get("matchAttribute")
            if compared is None:
                compared = constraint.get("distinctAttribute")
            if name == compared and (not targets or any(target in called for target in targets)):
                return
        detail = (
            "must be referenced by at least one matchAttribute or distinctAttribute constraint targeting this request"
        )
        self.errors.invalid(path, name, detail)

    def _check_constraints(self) -> None:
        path = f"{self.path}.constraints"
        if len(self.constraints) > MAX_CONSTRAINTS:
            self.errors.too_many(path, len(self.constraints), MAX_CONSTRAINTS, declarative=True)
            return
        for i, constraint in enumerate(self.constraints):
            self._check_constraint(constraint, f"{path}[{i}]")

    def _check_constraint(self, constraint: Document, path: str) -> None:
        check_references(constraint.get("requests") or [], self.known, f"{path}.requests", self.errors)
        match, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
        if match is not None:
            check_full_name(match, f"{path}.matchAttribute", self.errors)
        if distinct is not None:
            check_full_name(distinct, f"{path}.distinctAttribute", self.errors)
        if match is None and distinct is None:
            if self.context.enabled("DRAConsumableCapacity"):
                detail = (
                    'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
                )
                self.errors.required(path, detail)
            else:
                self.errors.required(f"{path}.matchAttribute")


def check_limits(limits: Document, requests: Document, path: str, errors: Errors) -> None:
    """What a request may use beyond the amount that it is sure to get; drivers see to it."""
    for name, limit in limits.items():
        here = key_path(path, name)
        check_qualified(name, path, errors)
        asked = requests.get(name)
        if Quantity.parse(limit).nanos < 0:
            errors.invalid(here, limit, "must be greater than or equal to 0")
        elif asked is not None and Quantity.parse(asked) > Quantity.parse(limit):
            errors.invalid(here, limit, f"must be greater than or equal to the request of {asked}")


def check_class_name(name: str, path: str, errors: Errors, *, declarative: bool = False) -> None:
    if not name:
        errors.required(path, declarative=declarative)
    else:
        errors.each_invalid(path, name, names.subdomain_problems(name), declarative=declarative)


def check_selectors(
    selectors: list[Document], path: str, context: ValidationContext, errors: Errors, *, unchanged: bool = False
) -> None:
    """`unchanged`: expressions that are stored already are not checked again."""
    if len(selectors) > MAX_SELECTORS:
        errors.too_many(path, len(selectors), MAX_SELECTORS, declarative=True)
        return
    for i, selector in enumerate(selectors):
        cel = selector.get("cel")
        if cel is None:
            errors.required(f"{path}[{i}].cel")
        elif not unchanged:
            check_selector(cel.get("expression") or "", f"{path}[{i}].cel.expression", context.gates, errors)


def check_tolerations(tolerations: list[Document], path: str, errors: Errors) -> None:
    for i, toleration in enumerate(tolerations):
        here = f"{path}[{i}]"
        if key := toleration.get("key"):
            errors.each_invalid(f"{here}.key", key, names.qualified_name_problems(key), declarative=True)
        operator, value = toleration.get("operator") or "", toleration.get("value") or ""
        check_enum(operator, TOLERATION_OPERATORS, f"{here}.operator", errors, required=True)
        if operator == "Exists" and value:
            errors.invalid(f"{here}.value", value, "must be empty for operator `Exists`")
        elif operator == "Equal":
            errors.each_invalid(f"{here}.value", value, names.label_value_problems(value))
        check_enum(toleration.get("effect") or "", TAINT_EFFECTS, f"{here}.effect", errors, required=False)


def check_configs(configs: list[Document], limit: int, known: RequestNames, path: str, errors: Errors) -> None:
    if len(configs) > limit:
        errors.too_many(path, len(configs), limit, declarative=True)
        return
    for i, config in enumerate(configs):
        check_references(config.get("requests") or [], known, f"{path}[{i}].requests", errors)
        check_opaque(config.get("opaque"), f"{path}[{i}].opaque", errors)


# A claim spec as Go prints it in messages. Type to its fields in order: JSON name and, behind a colon, its type (`[]` for a list) or zero.
_GO_TYPES = {
    "ClaimSpec": "devices:DeviceClaim",
    "DeviceClaim": "requests:[]Request constraints:[]Constraint config:[]Config",
    "Request": "name:'' exactly:Exact firstAvailable:[]SubRequest",
    "Exact": "deviceClassName:'' selectors:[]Selector allocationMode:'' count:0 adminAccess tolerations:[]Toleration "
    "capacity:Capacity derivedAttributes",
    "SubRequest": "name:'' deviceClassName:'' selectors:[]Selector allocationMode:'' count:0 tolerations:[]Toleration "
    "capacity:Capacity derivedAttributes",
    "Selector": "cel:Cel",
    "Cel": "expression:''",
    "Toleration": "key:'' operator:'' value:'' effect:'' tolerationSeconds",
    "Capacity": "requests",
    "Constraint": "requests matchAttribute distinctAttribute",
    "Config": "requests opaque:Opaque",
    "Opaque": "driver:'' parameters",
}
_GO_ZEROS: dict[str, Any] = {"''": "", "0": 0, "": None}
# Structs that Go prints even when they are empty.
_NEVER_NIL = frozenset({"DeviceClaim"})


def go_template_spec(spec: Document) -> Document:
    """A template spec as Go prints it: the metadata's fields beside the spec."""
    return {**(spec.get("metadata") or {}), "Spec": _go_struct(spec.get("spec") or {}, "ClaimSpec")}


def _go_struct(value: Document, type_name: str) -> Document:
    fields = (word.partition(":") for word in _GO_TYPES[type_name].split())
    return {_go_name(name): _go_value(value.get(name), inner) for name, _, inner in fields}


def _go_value(value: Any, inner: str) -> Any:
    if inner in _GO_ZEROS:
        return _GO_ZEROS[inner] if value is None else value
    if inner.startswith("[]"):
        return [_go_struct(entry, inner[2:]) for entry in value] if value else None
    if value is None and inner not in _NEVER_NIL:
        return None
    return _go_struct(value or {}, inner)


def _go_name(name: str) -> str:
    return "CEL" if name == "cel" else name[:1].upper() + name[1:]
