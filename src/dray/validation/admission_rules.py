"""The rules of webhooks and policies about which requests they mean: operations, groups, versions, resources, scope."""

from __future__ import annotations

from dray.validation.errors import Document, Errors

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
SCOPES = ("*", "Cluster", "Namespaced")
ALL = "*"


def check_rule(rule: Document, path: str, errors: Errors) -> None:
    operations = rule.get("operations") or []
    if not operations:
        errors.required(f"{path}.operations")
    if len(operations) > 1 and ALL in operations:
        errors.invalid(f"{path}.operations", operations, "if '*' is present, must not specify other operations")
    for i, operation in enumerate(operations):
        if operation not in OPERATIONS:
            errors.not_supported(f"{path}.operations[{i}]", operation, OPERATIONS)
    for field, words in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        names = rule.get(field) or []
        if not names:
            errors.required(f"{path}.{field}")
        if len(names) > 1 and ALL in names:
            errors.invalid(f"{path}.{field}", names, f"if '*' is present, must not specify other {words}")
    for i, version in enumerate(rule.get("apiVersions") or []):
        if not version:
            errors.required(f"{path}.apiVersions[{i}]")
    _check_resources(rule.get("resources") or [], f"{path}.resources", errors)
    scope = rule.get("scope")
    if scope is not None and scope not in SCOPES:
        errors.not_supported(f"{path}.scope", scope, SCOPES)


def _check_resources(resources: list[str], path: str, errors: Errors) -> None:
    if not resources:
        errors.required(path)
    whole_resources: set[str] = set()
    whole_subresources: set[str] = set()
    plain = False
    for i, pattern in enumerate(resources):
        if not pattern:
            errors.required(f"{path}[{i}]")
            continue
        resource, slash, subresource = pattern.partition("/")
        if not slash:
            plain = pattern != ALL
            continue
        if resource in whole_resources:
            errors.invalid(f"{path}[{i}]", pattern, f"if '{resource}/*' is present, must not specify {pattern}")
        if subresource in whole_subresources:
            errors.invalid(f"{path}[{i}]", pattern, f"if '*/{subresource}' is present, must not specify {pattern}")
        if subresource == ALL:
            whole_resources.add(resource)
        if resource == ALL:
            whole_subresources.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        errors.invalid(path, resources, "if '*/*' is present, must not specify other resources")
    if ALL in resources and plain:
        errors.invalid(path, resources, "if '*' is present, must not specify other resources without subresources")
