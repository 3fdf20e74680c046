"""Rules for MutatingWebhookConfiguration and ValidatingWebhookConfiguration, but for their expressions.

Whether a match condition compiles is checked where it is compiled, by the API server.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from dray.api.names import dns_1035_label_problems, subdomain_problems
from dray.validation.admission_rules import check_rule
from dray.validation.errors import Document, Errors
from dray.validation.label_selectors import check_label_selector

FAILURE_POLICIES = ("Fail", "Ignore")
MATCH_POLICIES = ("Equivalent", "Exact")
REINVOCATION_POLICIES = ("IfNeeded", "Never")
SIDE_EFFECTS = ("None", "NoneOnDryRun")
REVIEW_VERSIONS = ("v1", "v1beta1")
MAX_TIMEOUT_S = 30
URL_FORM = "; desired format: https://host[/path]"


def check_webhooks(document: Document, old: Document | None, errors: Errors) -> None:
    """Webhooks that an update leaves alone are not judged again."""
    webhooks = document.get("webhooks") or []
    if old is not None and webhooks == (old.get("webhooks") or []):
        return
    names: set[str] = set()
    for i, webhook in enumerate(webhooks):
        _check_webhook(webhook, f"webhooks[{i}]", errors)
        name = webhook.get("name")
        if name and name in names:
            errors.duplicate(f"webhooks[{i}].name", name)
        names.add(name)


def _check_webhook(webhook: Document, path: str, errors: Errors) -> None:
    _check_name(webhook.get("name") or "", f"{path}.name", errors)
    for i, rule in enumerate(webhook.get("rules") or []):
        check_rule(rule, f"{path}.rules[{i}]", errors)
    _check_choice(webhook, path, "failurePolicy", FAILURE_POLICIES, errors)
    _check_choice(webhook, path, "matchPolicy", MATCH_POLICIES, errors)
    if webhook.get("sideEffects") is None:
        errors.required(f"{path}.sideEffects", f"must specify one of {', '.join(SIDE_EFFECTS)}")
    _check_choice(webhook, path, "sideEffects", SIDE_EFFECTS, errors)
    timeout = webhook.get("timeoutSeconds")
    if timeout is not None and not 1 <= timeout <= MAX_TIMEOUT_S:
        errors.invalid(f"{path}.timeoutSeconds", timeout, "the timeout value must be between 1 and 30 seconds")
    for field in ("namespaceSelector", "objectSelector"):
        check_label_selector(webhook.get(field) or {}, f"{path}.{field}", errors)
    _check_choice(webhook, path, "reinvocationPolicy", REINVOCATION_POLICIES, errors)
    check_client_config(webhook.get("clientConfig") or {}, f"{path}.clientConfig", errors)
    check_review_versions(webhook.get("admissionReviewVersions") or [], f"{path}.admissionReviewVersions", errors)


def _check_name(name: str, path: str, errors: Errors) -> None:
    if not name:
        errors.required(path)
    elif problems := subdomain_problems(name):
        errors.invalid(path, name, ",".join(problems))
    elif name.count(".") < 2:
        errors.invalid(path, name, "should be a domain with at least three segments separated by dots")


def _check_choice(webhook: Document, path: str, field: str, supported: tuple[str, ...], errors: Errors) -> None:
    value = webhook.get(field)
    if value is not None and value not in supported:
        errors.not_supported(f"{path}.{field}", value, supported)


def check_client_config(config: Document, path: str, errors: Errors) -> None:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        errors.required(path, "exactly one of url or service is required")
    elif url is not None:
        _check_url(url, f"{path}.url", errors)
    elif service is not None:
        _check_service(service, f"{path}.service", errors)


def _check_url(url: str, path: str, errors: Errors) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        errors.required(path, f"url must be a valid URL: {error}{URL_FORM}")
        return
    if parts.scheme != "https":
        errors.invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{URL_FORM}")
    if not parts.netloc:
        errors.invalid(path, parts.netloc, f"host must be specified{URL_FORM}")
    if "@" in parts.netloc:
        errors.invalid(path, parts.netloc.rpartition("@")[0], "user information is not permitted in the URL")
    if parts.fragment:
        errors.invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        errors.invalid(path, parts.query, "query parameters are not permitted in the URL")


def _check_service(service: Document, path: str, errors: Errors) -> None:
    for field in ("name", "namespace"):
        if not service.get(field):
            errors.required(f"{path}.{field}")
    port = service.get("port") or 0
    if not 1 <= port <= 65535:
        why = "port is not valid: must be between 1 and 65535, inclusive"
        errors.invalid(f"{path}.port", port, why)
    url_path = service.get("path")
    if url_path in (None, "", "/"):
        return
    if url_path == "//":
        errors.invalid(f"{path}.path", url_path, "segment[0] may not be empty")
        return
    if not url_path.startswith("/"):
        errors.invalid(f"{path}.path", url_path, "must start with a '/'")
    for i, step in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not step:
            errors.invalid(f"{path}.path", url_path, f"segment[{i}] may not be empty")
        else:
            details = [f"segment[{i}]: {problem}" for problem in subdomain_problems(step)]
            errors.each_invalid(f"{path}.path", url_path, details)


def check_review_versions(versions: list[str], path: str, errors: Errors) -> None:
    if not versions:
        errors.required(path, f"must specify one of {', '.join(REVIEW_VERSIONS)}")
        return
    seen: set[str] = set()
    for i, version in enumerate(versions):
        if version in seen:
            errors.invalid(f"{path}[{i}]", version, "duplicate version")
            continue
        seen.add(version)
        errors.each_invalid(f"{path}[{i}]", version, dns_1035_label_problems(version))
    if not seen & set(REVIEW_VERSIONS):
        errors.invalid(path, versions, f"must include at least one of {', '.join(REVIEW_VERSIONS)}")
