"""Rules for the security contexts of pods and containers: what no cluster allows, whatever its Pod Security labels say."""

from __future__ import annotations

from dray.validation.errors import Document, Errors

MOST = 2**31 - 1
PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
LONGEST_PROFILE = 4095


def check_pod_context(context: Document, path: str, errors: Errors) -> None:
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        _check_id(context.get(field), f"{path}.{field}", errors)
    for i, group in enumerate(context.get("supplementalGroups") or ()):
        _check_id(group, f"{path}.supplementalGroups[{i}]", errors)
    _check_choice(context, "fsGroupChangePolicy", ("Always", "OnRootMismatch"), path, errors)
    _check_profiles(context, path, errors)
    _check_choice(context, "supplementalGroupsPolicy", ("Merge", "Strict"), path, errors)


def check_container_context(context: Document, path: str, errors: Errors, *, has_own_users: bool) -> None:
    for field in ("runAsUser", "runAsGroup"):
        _check_id(context.get(field), f"{path}.{field}", errors)
    _check_choice(context, "procMount", ("Default", "Unmasked"), path, errors)
    if context.get("procMount") == "Unmasked" and not has_own_users:
        errors.invalid(f"{path}.procMount", "Unmasked", "`hostUsers` must be false to use `Unmasked`")
    _check_profiles(context, path, errors)
    if context.get("privileged") and context.get("allowPrivilegeEscalation") is False:
        errors.invalid(path, context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")


def _check_id(value: int | None, path: str, errors: Errors) -> None:
    if value is not None and not 0 <= value <= MOST:
        errors.invalid(path, value, f"must be between 0 and {MOST}, inclusive")


def _check_choice(context: Document, field: str, choices: tuple[str, ...], path: str, errors: Errors) -> None:
    value = context.get(field)
    if value is not None and value not in choices:
        errors.not_supported(f"{path}.{field}", value, choices)


def _check_profiles(context: Document, path: str, errors: Errors) -> None:
    for field, words in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        profile = context.get(field)
        if profile is not None:
            _check_profile(profile, field, words, f"{path}.{field}", errors)


def _check_profile(profile: Document, field: str, words: str, path: str, errors: Errors) -> None:
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    if not kind:
        errors.required(f"{path}.type", f"type is required when {field} is set")
    elif kind not in PROFILES:
        errors.not_supported(f"{path}.type", kind, PROFILES)
    if kind != "Localhost":
        if local is not None:
            errors.invalid(f"{path}.localhostProfile", local, f"can only be set when {words} type is Localhost")
    elif not local:
        errors.required(f"{path}.localhostProfile", f"must be set when {words} type is Localhost")
    elif field == "seccompProfile":
        _check_path_below(local, f"{path}.localhostProfile", errors)
    else:
        if local != local.strip():
            errors.invalid(f"{path}.localhostProfile", local, "must not be padded with whitespace")
        if len(local) > LONGEST_PROFILE:
            errors.too_long(f"{path}.localhostProfile", LONGEST_PROFILE)


def _check_path_below(value: str, path: str, errors: Errors) -> None:
    if value.startswith("/"):
        errors.invalid(path, value, "must be a relative path")
    if ".." in value.split("/"):
        errors.invalid(path, value, "must not contain '..'")
