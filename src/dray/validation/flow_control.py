"""Rules for FlowSchema and PriorityLevelConfiguration. The server keeps its own `exempt` and `catch-all`, whatever their objects say."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

from dray.api import names
from dray.validation.errors import Document, Errors

DISTINGUISHERS = ("ByNamespace", "ByUser")
SUBJECT_KINDS = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
LEVEL_TYPES = ("Exempt", "Limited")
RESPONSE_TYPES = ("Queue", "Reject")
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
LAST_PRECEDENCE = 10_000
MAX_QUEUES = 10_000_000
# Bits of a hash that choosing the queues of a flow may use.
MAX_HASH_BITS = 60
_NOT_NEGATIVE = "must be a non-negative integer"


# --- FlowSchema ------------------------------------------------------------------------------------------------------


def check_flow_schema(new: Document, old: Document | None, errors: Errors) -> None:
    """What an earlier version took may stay."""
    spec = new.get("spec") or {}
    if old is not None and spec == (old.get("spec") or {}):
        return
    _check_precedence(spec.get("matchingPrecedence") or 0, (new.get("metadata") or {}).get("name") or "", errors)
    distinguisher = spec.get("distinguisherMethod")
    if distinguisher is not None and (kind := distinguisher.get("type") or "") not in DISTINGUISHERS:
        # Printed as Go prints it.
        errors.not_supported("spec.distinguisherMethod.type", {"Type": kind}, DISTINGUISHERS)
    level, path = (
        (spec.get("priorityLevelConfiguration") or {}).get("name") or "",
        "spec.priorityLevelConfiguration.name",
    )
    if level:
        errors.each_invalid(path, level, names.subdomain_problems(level))
    else:
        errors.required(path, "must reference a priority level")
    for i, rule in enumerate(spec.get("rules") or ()):
        _check_rule(rule, f"spec.rules[{i}]", errors)


def _check_precedence(precedence: int, name: str, errors: Errors) -> None:
    path = "spec.matchingPrecedence"
    if precedence <= 0:
        errors.invalid(path, precedence, "must be a positive value")
    if precedence > LAST_PRECEDENCE:
        errors.invalid(path, precedence, f"must not be greater than {LAST_PRECEDENCE}")
    if precedence == 1 and name != "exempt":
        errors.invalid(path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1")


def _check_rule(rule: Document, path: str, errors: Errors) -> None:
    subjects = rule.get("subjects") or ()
    if not subjects:
        errors.required(f"{path}.subjects", "subjects must contain at least one value")
    for i, subject in enumerate(subjects):
        _check_subject(subject, f"{path}.subjects[{i}]", errors)
    resources, paths = rule.get("resourceRules") or (), rule.get("nonResourceRules") or ()
    if not resources and not paths:
        errors.required(path, "at least one of resourceRules and nonResourceRules has to be non-empty")
    for i, each in enumerate(resources):
        _check_resource_rule(each, f"{path}.resourceRules[{i}]", errors)
    for i, each in enumerate(paths):
        _check_path_rule(each, f"{path}.nonResourceRules[{i}]", errors)


def _check_subject(subject: Document, path: str, errors: Errors) -> None:
    kind = subject.get("kind") or ""
    if kind not in SUBJECT_KINDS:
        errors.not_supported(f"{path}.kind", kind, sorted(SUBJECT_KINDS))
        return
    field = SUBJECT_KINDS[kind]
    named = subject.get(field)
    if named is None:
        errors.required(f"{path}.{field}", f"{field} is required when subject kind is '{kind}'")
    elif not named.get("name"):
        errors.required(f"{path}.{field}.name")
    elif kind == "ServiceAccount" and named["name"] != "*":
        errors.each_invalid(f"{path}.{field}.name", named["name"], names.subdomain_problems(named["name"]))
    if kind == "ServiceAccount" and named is not None:
        _check_account_namespace(named.get("namespace") or "", f"{path}.{field}.namespace", errors)
    for other_kind, other in SUBJECT_KINDS.items():
        if other != field and subject.get(other) is not None:
            errors.forbidden(f"{path}.{other}", f"{other} is forbidden when subject kind is not '{other_kind}'")


def _check_account_namespace(namespace: str, path: str, errors: Errors) -> None:
    if namespace:
        errors.each_invalid(path, namespace, names.label_problems(namespace))
    else:
        errors.required(path, "must specify namespace for service account")


def _check_resource_rule(rule: Document, path: str, errors: Errors) -> None:
    _check_verbs(rule, path, errors)
    for field, one, many in (("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")):
        values = rule.get(field) or ()
        if not values:
            errors.required(f"{path}.{field}", f"resource rules must supply at least one {one}")
        _check_wildcard(values, f"{path}.{field}", many, errors)
    namespaces = rule.get("namespaces") or ()
    if not namespaces and not rule.get("clusterScope"):
        detail = "resource rules that are not cluster scoped must supply at least one namespace"
        errors.required(f"{path}.namespaces", detail)
    _check_wildcard(namespaces, f"{path}.namespaces", "namespaces", errors)
    if "*" in namespaces:
        return
    for i, namespace in enumerate(namespaces):
        problems = names.label_problems(namespace)
        details = [f"each member of this list must be '*' or a DNS-1123 label; {problem}" for problem in problems]
        errors.each_invalid(f"{path}.namespaces[{i}]", namespace, details)


def _check_path_rule(rule: Document, path: str, errors: Errors) -> None:
    _check_verbs(rule, path, errors)
    urls, here = rule.get("nonResourceURLs") or (), f"{path}.nonResourceURLs"
    if not urls:
        errors.required(here, "nonResourceURLs must contain at least one value")
    _check_wildcard(urls, here, "non-resource URLs", errors)
    if "*" in urls:
        return
    for i, url in enumerate(urls):
        if problem := _url_problem(url):
            errors.invalid(f"{here}[{i}]", url, problem)


def _url_problem(url: str) -> str:
    if not url:
        return "must not be empty"
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    is_suffix = url.count("*") == 1 and url.endswith("/*")
    return "" if "*" not in url or is_suffix else "wildcard can only do suffix matching"


def _check_verbs(rule: Document, path: str, errors: Errors) -> None:
    verbs, here = rule.get("verbs") or (), f"{path}.verbs"
    if not verbs:
        errors.required(here, "verbs must contain at least one value")
    elif "*" not in verbs and not set(verbs) <= set(VERBS):
        errors.not_supported(here, verbs, VERBS)
    _check_wildcard(verbs, here, "verbs", errors)


def _check_wildcard(values: Sequence[str], path: str, what: str, errors: Errors) -> None:
    if len(values) > 1 and "*" in values:
        errors.invalid(path, values, f"if '*' is present, must not specify other {what}")


# --- PriorityLevelConfiguration --------------------------------------------------------------------------------------


def check_priority_level(new: Document, old: Document | None, errors: Errors) -> None:
    """What an earlier version took may stay."""
    spec = new.get("spec") or {}
    if old is not None and spec == (old.get("spec") or {}):
        return
    kind, limited, exempt = spec.get("type") or "", spec.get("limited"), spec.get("exempt")
    if ((new.get("metadata") or {}).get("name") == "exempt") != (kind == "Exempt"):
        errors.invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'")
    _check_choice(kind, LEVEL_TYPES, "spec.type", errors)
    if exempt is not None and kind != "Exempt":
        errors.forbidden("spec.exempt", "")
    elif exempt is not None:
        _check_shares(exempt, "spec.exempt", errors)
    if limited is not None and kind != "Limited":
        errors.forbidden("spec.limited", "")
    elif limited is not None:
        _check_limited(limited, errors)
    elif kind == "Limited":
        errors.required("spec.limited", declarative=True)


def _check_choice(kind: str, known: Sequence[str], path: str, errors: Errors) -> None:
    if not kind:
        errors.required(path, declarative=True)
    elif kind not in known:
        errors.not_supported(path, kind, known)


def _check_shares(shares: Document, path: str, errors: Errors) -> None:
    if (shares.get("nominalConcurrencyShares") or 0) < 0:
        errors.invalid(f"{path}.nominalConcurrencyShares", shares["nominalConcurrencyShares"], _NOT_NEGATIVE)
    if not 0 <= (shares.get("lendablePercent") or 0) <= 100:
        errors.invalid(f"{path}.lendablePercent", shares["lendablePercent"], "must be between 0 and 100, inclusive")


def _check_limited(limited: Document, errors: Errors) -> None:
    path, response = "spec.limited", limited.get("limitResponse") or {}
    _check_shares(limited, path, errors)
    kind, queuing = response.get("type") or "", response.get("queuing")
    _check_choice(kind, RESPONSE_TYPES, f"{path}.limitResponse.type", errors)
    if queuing is not None and kind != "Queue":
        errors.forbidden(f"{path}.limitResponse.queuing", "")
    elif queuing is not None:
        _check_queuing(queuing, f"{path}.limitResponse.queuing", errors)
    elif kind == "Queue":
        errors.required(f"{path}.limitResponse.queuing", declarative=True)
    if (limited.get("borrowingLimitPercent") or 0) < 0:
        detail = f"if specified, {_NOT_NEGATIVE}"
        errors.invalid(f"{path}.borrowingLimitPercent", limited["borrowingLimitPercent"], detail)


def _check_queuing(queuing: Document, path: str, errors: Errors) -> None:
    length, queues, hand = (queuing.get(field) or 0 for field in ("queueLengthLimit", "queues", "handSize"))
    for field, number in (("queueLengthLimit", length), ("queues", queues), ("handSize", hand)):
        if number <= 0:
            errors.invalid(f"{path}.{field}", number, "must be positive")
    if queues > MAX_QUEUES:
        errors.invalid(f"{path}.queues", queues, f"must not be greater than {MAX_QUEUES}")
    if hand <= 0:
        return
    if hand > queues:
        errors.invalid(f"{path}.handSize", hand, f"should not be greater than queues ({queues})")
    elif ceil(log2(queues) * hand) > MAX_HASH_BITS:
        detail = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than"
        errors.invalid(f"{path}.handSize", hand, f"{detail} {MAX_HASH_BITS}")
