"""The rule for the names of signers: a domain, a slash and a path, as in `example.com/my-signer`."""

from __future__ import annotations

from dray.api import names
from dray.api.names import byte_length
from dray.validation.errors import Errors

FORM = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
MAX_DOMAIN = 253
# With room for a namespace, a dot and a name behind the slash.
MAX_SIGNER = MAX_DOMAIN + 1 + 253 + 63 + 1


def check_signer_name(name: str, path: str, errors: Errors) -> None:
    if not name:
        errors.required(path)
        return
    if name.count("/") != 1:
        errors.invalid(path, name, FORM)
        return
    domain, _, rest = name.partition("/")
    if byte_length(domain) > MAX_DOMAIN:
        errors.too_long(path, MAX_DOMAIN)
    labels = domain.split(".")
    _check_segments(domain, labels, names.label_problems, path, errors)
    if len(labels) < 2:
        errors.invalid(path, domain, "should be a domain with at least two segments separated by dots")
    _check_segments(rest, rest.split("."), names.subdomain_problems, path, errors)
    if byte_length(name) > MAX_SIGNER:
        errors.too_long(path, MAX_SIGNER)


def _check_segments(part: str, segments: list[str], rule: names.Problems, path: str, errors: Errors) -> None:
    """The problems of the first segment that has any."""
    for segment in segments:
        if problems := rule(segment):
            errors.each_invalid(path, part, (f'validating label "{segment}": {problem}' for problem in problems))
            return
