"""Rules for Job and CronJob."""

from __future__ import annotations

import re
from typing import Any

from dray.api.names import label_problems, qualified_name_problems
from dray.validation.equality import same
from dray.validation.errors import NO_VALUE, Document, Errors, ValidationContext
from dray.validation.formats import IMMUTABLE, check_domain_path, check_not_negative
from dray.validation.label_selectors import check_label_selector
from dray.validation.pod_templates import check_matches, check_template
from dray.validation.schedules import schedule_problem

MODES = ("NonIndexed", "Indexed")
CONCURRENCY_POLICIES = ("Allow", "Forbid", "Replace")
REPLACEMENT_POLICIES = ("Failed", "TerminatingOrFailed")
ENDING_POLICIES = ("OnFailure", "Never")
MOST_PARALLEL = MOST_FAILED = MANY_COMPLETIONS = 100_000
MOST_OF_MANY = 10_000
_FIXED = (
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)


def check_job(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    spec = new.get("spec") or {}
    if old is None:
        _check_generated_selector(new, errors)
    check_job_spec(spec, "spec", context, errors)
    _check_selector(spec, errors)
    if old is None:
        _check_host_names(new, errors)
    else:
        _check_kept(spec, old.get("spec") or {}, errors)


# --- the selector ----------------------------------------------------------------------------------------------------


def _check_generated_selector(job: Document, errors: Errors) -> None:
    """Unless the user wants a selector of their own, it selects by the labels that the server adds to the template."""
    spec, meta = job.get("spec") or {}, job.get("metadata") or {}
    selector = spec.get("selector")
    if spec.get("manualSelector") or selector is None:
        return
    uid, name = meta.get("uid") or "", meta.get("name") or ""
    added = {"controller-uid": uid, "job-name": name}
    added |= {f"batch.kubernetes.io/{label}": value for label, value in added.items()}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    for label, value in added.items():
        path = f"spec.template.metadata.labels[{label}]"
        if label not in labels:
            errors.required(path, f"must be '{value}'")
        elif labels[label] != value:
            errors.invalid(path, labels, f"must be '{value}'")
    found = Errors()
    check_label_selector(selector, "", found)
    check_matches(selector, {"metadata": {"labels": added}}, "", found)
    if found.found:
        errors.invalid("spec.selector", selector, "`selector` not auto-generated")


def _check_selector(spec: Document, errors: Errors) -> None:
    selector, before = spec.get("selector"), len(errors)
    if selector is None:
        errors.required("spec.selector")
    else:
        check_label_selector(selector, "spec.selector", errors)
    if selector is None or len(errors) == before:
        check_matches(selector, spec.get("template") or {}, "spec.template", errors)


# --- the spec --------------------------------------------------------------------------------------------------------

_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)


def check_job_spec(spec: Document, path: str, context: ValidationContext, errors: Errors) -> None:
    """The spec of a Job, or of the jobs that a CronJob makes."""
    check_not_negative(spec, path, _COUNTS, errors)
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errors.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if (manager := spec.get("managedBy")) is not None:
        check_domain_path(manager, f"{path}.managedBy", errors)
        if len(manager) > 63:
            errors.too_long(f"{path}.managedBy", 63)
    mode = spec.get("completionMode") or "NonIndexed"
    if mode not in MODES:
        errors.not_supported(f"{path}.completionMode", mode, MODES)
    if mode == "Indexed":
        _check_indexed(spec, path, errors)
    elif mode == "NonIndexed":
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                errors.invalid(f"{path}.{name}", spec[name], "requires indexed completion mode")
    _check_policies(spec, path, errors)
    template = spec.get("template") or {}
    check_template(template, f"{path}.template", context, errors)
    _check_ends(template.get("spec") or {}, spec, f"{path}.template.spec.restartPolicy", errors)


def _check_indexed(spec: Document, path: str, errors: Errors) -> None:
    completions, parallelism, failed = (spec.get(name) for name in ("completions", "parallelism", "maxFailedIndexes"))
    if completions is None:
        errors.required(f"{path}.completions", "when completion mode is Indexed")
    if (parallelism or 0) > MOST_PARALLEL:
        detail = f"must be less than or equal to {MOST_PARALLEL} when completion mode is Indexed"
        errors.invalid(f"{path}.parallelism", parallelism, detail)
    if completions is not None and failed is not None and failed > completions:
        errors.invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions")
    if (failed or 0) > MOST_FAILED:
        errors.invalid(f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {MOST_FAILED}")
    if (completions or 0) <= MANY_COMPLETIONS or spec.get("backoffLimitPerIndex") is None:
        return
    if failed is None:
        detail = f"must be specified when completions is above {MANY_COMPLETIONS}"
        errors.required(f"{path}.maxFailedIndexes", detail)
    for name in ("parallelism", "maxFailedIndexes"):
        if (spec.get(name) or 0) > MOST_OF_MANY:
            detail = f"must be less than or equal to {MOST_OF_MANY} when completions are above {MANY_COMPLETIONS}"
            errors.invalid(f"{path}.{name}", spec[name], f"{detail} and used with backoff limit per index")


def _check_policies(spec: Document, path: str, errors: Errors) -> None:
    failure, success, replacement = (
        spec.get(name) for name in ("podFailurePolicy", "successPolicy", "podReplacementPolicy")
    )
    if failure is not None:
        _check_failure_policy(failure, spec, f"{path}.podFailurePolicy", errors)
    if success is not None and spec.get("completionMode") == "Indexed":
        _check_success_policy(success, spec.get("completions") or 0, f"{path}.successPolicy", errors)
    elif success is not None:
        # Printed as Go prints it.
        rules = [
            {"SucceededIndexes": rule.get("succeededIndexes"), "SucceededCount": rule.get("succeededCount")}
            for rule in success.get("rules") or ()
        ]
        errors.invalid(f"{path}.successPolicy", {"Rules": rules or None}, "requires indexed completion mode")
    possible = ("Failed",) if failure is not None else REPLACEMENT_POLICIES
    if replacement and replacement not in possible:
        errors.not_supported(f"{path}.podReplacementPolicy", replacement, possible)


def _check_ends(pod: Document, spec: Document, path: str, errors: Errors) -> None:
    policy = pod.get("restartPolicy") or "Always"
    if policy == "Always":
        errors.required(path, 'valid values: "OnFailure", "Never"')
    elif policy not in ENDING_POLICIES:
        errors.not_supported(path, policy, ENDING_POLICIES)
    elif policy != "Never" and spec.get("podFailurePolicy") is not None:
        errors.invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _check_host_names(job: Document, errors: Errors) -> None:
    """The pods of an indexed job are named after it and their index."""
    spec, name = job.get("spec") or {}, (job.get("metadata") or {}).get("name") or ""
    if spec.get("completionMode") == "Indexed" and (spec.get("completions") or 0) > 0:
        last = f"{name}-{spec['completions'] - 1}"
        if label_problems(last):
            errors.invalid("metadata.name", name, f"will not able to create pod with invalid DNS label: {last}")


# --- when pods fail --------------------------------------------------------------------------------------------------

ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
OPERATORS = ("In", "NotIn")
CONDITION_STATES = ("False", "True", "Unknown")
MOST_RULES = MOST_PATTERNS = 20
MOST_EXIT_CODES = 255


def _check_failure_policy(policy: Document, spec: Document, path: str, errors: Errors) -> None:
    rules = policy.get("rules") or []
    if len(rules) > MOST_RULES:
        errors.too_many(f"{path}.rules", len(rules), MOST_RULES)
        return
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = {each.get("name") for field in ("containers", "initContainers") for each in pod.get(field) or ()}
    for i, rule in enumerate(rules):
        here, action = f"{path}.rules[{i}]", rule.get("action") or ""
        if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            errors.invalid(f"{here}.action", action, "requires the backoffLimitPerIndex to be set")
        else:
            _check_known(action, ACTIONS, f"{here}.action", errors)
        _check_failure(rule, containers, here, errors)


def _check_failure(rule: Document, containers: set[Any], path: str, errors: Errors) -> None:
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
    if codes is not None:
        _check_exit_codes(codes, containers, f"{path}.onExitCodes", errors)
    if len(conditions) > MOST_PATTERNS:
        errors.too_many(f"{path}.onPodConditions", len(conditions), MOST_PATTERNS)
        return
    for i, pattern in enumerate(conditions):
        here, kind = f"{path}.onPodConditions[{i}]", pattern.get("type") or ""
        errors.each_invalid(f"{here}.type", kind, qualified_name_problems(kind))
        _check_known(pattern.get("status") or "", CONDITION_STATES, f"{here}.status", errors)
    if codes is not None and conditions:
        detail = "specifying both OnExitCodes and OnPodConditions is not supported"
        errors.invalid(path, NO_VALUE, detail)
    if codes is None and not conditions:
        errors.invalid(path, NO_VALUE, "specifying one of OnExitCodes and OnPodConditions is required")


def _check_known(value: str, known: tuple[str, ...], path: str, errors: Errors) -> None:
    if not value:
        listed = " ".join(f'"{name}"' for name in known)
        errors.required(path, f"valid values: [{listed}]")
    elif value not in known:
        errors.not_supported(path, value, known)


def _check_exit_codes(codes: Document, containers: set[Any], path: str, errors: Errors) -> None:
    operator, values, container = codes.get("operator") or "", codes.get("values") or [], codes.get("containerName")
    _check_known(operator, OPERATORS, f"{path}.operator", errors)
    if container is not None and container not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        errors.invalid(f"{path}.containerName", container, detail)
    if not values:
        errors.invalid(f"{path}.values", values, "at least one value is required")
    elif len(values) > MOST_EXIT_CODES:
        errors.too_many(f"{path}.values", len(values), MOST_EXIT_CODES)
        return
    seen: set[int] = set()
    for i, value in enumerate(values):
        if operator == "In" and value == 0:
            errors.invalid(f"{path}.values[{i}]", value, "must not be 0 for the In operator")
        if value in seen:
            errors.duplicate(f"{path}.values[{i}]", value)
        seen.add(value)
    if values != sorted(values):
        errors.invalid(f"{path}.values", values, "must be ordered")


# --- when enough pods have succeeded ---------------------------------------------------------------------------------

MOST_INDEX_TEXT = 64 * 1024


def _check_success_policy(policy: Document, completions: int, path: str, errors: Errors) -> None:
    rules = policy.get("rules") or []
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        errors.required(f"{path}.rules", detail)
    if len(rules) > MOST_RULES:
        errors.too_many(f"{path}.rules", len(rules), MOST_RULES)
        return
    for i, rule in enumerate(rules):
        _check_success(rule, completions, f"{path}.rules[{i}]", errors)


def _check_success(rule: Document, completions: int, path: str, errors: Errors) -> None:
    count, indexes, known = rule.get("succeededCount"), rule.get("succeededIndexes"), 0
    if count is None and indexes is None:
        errors.required(path, "at least one of succeededCount or succeededIndexes must be specified")
    if indexes is not None:
        here = f"{path}.succeededIndexes"
        if len(indexes) > MOST_INDEX_TEXT:
            errors.too_long(here, MOST_INDEX_TEXT)
            return
        try:
            known = _count_indexes(indexes, completions)
        except _BadIndexes as problem:
            errors.invalid(here, indexes, f"error parsing succeededIndexes: {problem}")
    if count is None:
        return
    check_not_negative(rule, path, ("succeededCount",), errors)
    limits = [(completions, "the number of specified completions")]
    if indexes is not None:
        limits.append((known, "the number of indexes in the specified succeededIndexes field"))
    for limit, meaning in limits:
        if count > limit:
            detail = f"must be less than or equal to {limit} ({meaning})"
            errors.invalid(f"{path}.succeededCount", count, detail)


class _BadIndexes(Exception):
    """What is wrong with a list of indexes."""


def _count_indexes(text: str, completions: int) -> int:
    """How many indexes a text such as `0-3,7` has. There may be tens of thousands."""
    total, last = 0, -1
    for part in text.split(",") if text else ():
        low, dash, high = part.partition("-")
        if "-" in high:
            rule = "violates the requirement that an index interval can have at most two parts separated by '-'"
            raise _BadIndexes(f'the fragment "{part}" {rule}')
        first = _index(low, completions)
        end = _index(high, completions) if dash else first
        if dash and end <= first:
            raise _BadIndexes(f"non-increasing order, previous: {first}, current: {end}")
        if first <= last:
            raise _BadIndexes(f"non-increasing order, previous: {last}, current: {first}")
        total += end - first + 1
        last = end
    return total


def _index(text: str, completions: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise _BadIndexes(f'cannot convert string to integer for index: "{text}"')
    if (index := int(text)) >= completions:
        raise _BadIndexes(f'too large index: "{text}"')
    return index


# --- update ----------------------------------------------------------------------------------------------------------


def _check_kept(spec: Document, before: Document, errors: Errors) -> None:
    """A job keeps what its pods were made from. While it is suspended, it may still change where they run."""
    completions = spec.get("completions")
    if completions != before.get("completions"):
        if spec.get("completionMode") != "Indexed":
            errors.invalid("spec.completions", completions, IMMUTABLE)
        elif completions != spec.get("parallelism"):
            errors.invalid("spec.completions", completions, "can only be modified in tandem with spec.parallelism")
    if not same(spec.get("selector"), before.get("selector")):
        errors.invalid("spec.selector", spec.get("selector"), IMMUTABLE)
    template, old_template = spec.get("template") or {}, before.get("template") or {}
    if not before.get("suspend"):
        if not same(template, old_template):
            errors.invalid("spec.template", template, IMMUTABLE)
    elif not same(_fixed_parts(template), _fixed_parts(old_template)):
        errors.invalid("spec.template.spec", template.get("spec"), IMMUTABLE)
    for name in _FIXED:
        if not same(spec.get(name), before.get(name)):
            errors.invalid(f"spec.{name}", spec.get(name), IMMUTABLE)


def _fixed_parts(template: Document) -> Document:
    """The pod of a suspended job without placement and resources."""
    free = ("nodeSelector", "tolerations", "schedulingGates", "affinity")
    pod = template.get("spec") or {}
    made = {key: value for key, value in pod.items() if key not in free}
    made["affinity"] = {k: v for k, v in (pod.get("affinity") or {}).items() if k != "nodeAffinity"}
    for field in ("containers", "initContainers"):
        made[field] = [{k: v for k, v in each.items() if k != "resources"} for each in pod.get(field) or ()]
    return made


# --- CronJob ---------------------------------------------------------------------------------------------------------

MOST_OF_A_NAME = 52
_is_zone_part = re.compile(r"(?![-])[A-Za-z._0-9+-]{1,14}", re.ASCII).fullmatch


def check_cron_job(new: Document, old: Document | None, context: ValidationContext, errors: Errors) -> None:
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    _check_schedule(spec, before.get("schedule") or "", errors)
    check_not_negative(spec, "spec", ("startingDeadlineSeconds",), errors)
    zone = spec.get("timeZone")
    if zone is not None and zone != before.get("timeZone"):
        _check_time_zone(zone, errors)
    policy = spec.get("concurrencyPolicy") or ""
    if policy and policy not in CONCURRENCY_POLICIES:
        errors.not_supported("spec.concurrencyPolicy", policy, CONCURRENCY_POLICIES)
    job, path = (spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec"
    check_job_spec(job, path, context, errors)
    if job.get("selector") is not None:
        errors.invalid(f"{path}.selector", job["selector"], "`selector` will be auto-generated")
    if job.get("manualSelector"):
        errors.not_supported(f"{path}.manualSelector", True, ("nil", "false"))
    check_not_negative(spec, "spec", ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"), errors)
    name = (new.get("metadata") or {}).get("name") or ""
    if old is None and len(name) > MOST_OF_A_NAME:
        errors.invalid("metadata.name", name, f"must be no more than {MOST_OF_A_NAME} characters")


def _check_schedule(spec: Document, before: str, errors: Errors) -> None:
    schedule, path = spec.get("schedule") or "", "spec.schedule"
    if not schedule:
        errors.required(path, declarative=True)
        return
    if problem := schedule_problem(schedule):
        errors.invalid(path, schedule, problem)
    if "TZ" not in schedule:
        return
    if "TZ" not in before:
        errors.invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    elif spec.get("timeZone") is not None:
        errors.invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")


def _check_time_zone(zone: str, errors: Errors) -> None:
    """Its form; whether there is such a zone is for the controller to say."""
    path = "spec.timeZone"
    if not zone:
        errors.invalid(path, zone, "timeZone must be nil or non-empty string")
    elif not all(_is_zone_part(part) and part not in (".", "..") for part in zone.split("/")):
        errors.invalid(path, zone, f"unknown time zone {zone}")
    elif zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        errors.invalid(path, zone, detail)
