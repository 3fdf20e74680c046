"""What a valid name is, for each kind of name in the API.

Each function returns the complaints in Kubernetes' words, none if the name is valid. Which error type a complaint
becomes, and whether an empty name is "required" or "invalid", is up to the rule that asks.
"""

import re
from collections.abc import Callable
from functools import lru_cache, wraps

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_1035_LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_CASELESS_LABEL = r"[a-z0-9A-Z]([-a-z0-9A-Z]*[a-z0-9A-Z])?"
_CASELESS_SUBDOMAIN = rf"{_CASELESS_LABEL}(\.{_CASELESS_LABEL})*"
_QUALIFIED_PART = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_C_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"

is_label_text = re.compile(_LABEL, re.ASCII).fullmatch
_is_dns_1035_label = re.compile(_DNS_1035_LABEL, re.ASCII).fullmatch
is_subdomain_text = re.compile(_SUBDOMAIN, re.ASCII).fullmatch
_is_caseless_subdomain = re.compile(_CASELESS_SUBDOMAIN, re.ASCII).fullmatch
_is_qualified_part = re.compile(_QUALIFIED_PART, re.ASCII).fullmatch
_is_label_value = re.compile(_LABEL_VALUE, re.ASCII).fullmatch
_is_c_identifier = re.compile(_C_IDENTIFIER, re.ASCII).fullmatch
_is_uuid = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII).fullmatch

MAX_LABEL = 63
MAX_SUBDOMAIN = 253
MAX_DRIVER = 63
MAX_IDENTIFIER = 32
MAX_POOL = 253

LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
CASELESS_SUBDOMAIN_RULE = (
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an "
    f"alphanumeric character (e.g. 'example.com', regex used for validation is '{_CASELESS_SUBDOMAIN}')"
)
QUALIFIED_PART_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED_PART}')"
)
QUALIFIED_NAME_RULE = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_QUALIFIED_PART}') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_LABEL_VALUE}')"
)
C_IDENTIFIER_RULE = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    f"or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '{_C_IDENTIFIER}')"
)
DNS_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
    "end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_DNS_1035_LABEL}')"
)
SEMVER_RULE = "must be a string compatible with semver.org spec 2.0.0"
UUID_RULE = "must be a lowercase UUID in 8-4-4-4-12 format"


Problems = Callable[[str], tuple[str, ...]]

# Names of drivers, attributes and labels repeat, so the newest answers are remembered; not for long texts, which are wrong anyway and
# would fill the memory. Most names of objects do not repeat, and must not fill it either.
_REMEMBERED_LENGTH = 512
_REMEMBERED_ANSWERS = 2048


def _remembered(problems: Problems) -> Problems:
    cached = lru_cache(maxsize=_REMEMBERED_ANSWERS)(problems)

    @wraps(problems)
    def ask(name: str) -> tuple[str, ...]:
        return cached(name) if len(name) <= _REMEMBERED_LENGTH else problems(name)

    return ask


def byte_length(text: str) -> int:
    """Kubernetes counts bytes; lone surrogates, which JSON can smuggle in, count as the three bytes they replace."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


@_remembered
def label_problems(name: str) -> tuple[str, ...]:
    """DNS-1123 label: requests, devices, counters, conditions of entry in a pod."""
    problems: list[str] = []
    if byte_length(name) > MAX_LABEL:
        problems.append(_too_long(MAX_LABEL))
    if not is_label_text(name):
        problems.append("must not contain dots" if is_subdomain_text(name) else LABEL_RULE)
    return tuple(problems)


@_remembered
def dns_1035_label_problems(name: str) -> tuple[str, ...]:
    """DNS-1035 label: versions, and the names of custom resources."""
    problems: list[str] = []
    if byte_length(name) > MAX_LABEL:
        problems.append(_too_long(MAX_LABEL))
    if not _is_dns_1035_label(name):
        problems.append(DNS_1035_RULE)
    return tuple(problems)


@_remembered
def subdomain_problems(name: str) -> tuple[str, ...]:
    """DNS-1123 subdomain: object names, class names, node names."""
    problems: list[str] = []
    if byte_length(name) > MAX_SUBDOMAIN:
        problems.append(f"must be no more than {MAX_SUBDOMAIN} characters")
    if not is_subdomain_text(name):
        problems.append(SUBDOMAIN_RULE)
    return tuple(problems)


@_remembered
def caseless_subdomain_problems(name: str) -> tuple[str, ...]:
    problems: list[str] = []
    if byte_length(name) > MAX_SUBDOMAIN:
        problems.append(f"must be no more than {MAX_SUBDOMAIN} characters")
    if not _is_caseless_subdomain(name):
        problems.append(CASELESS_SUBDOMAIN_RULE)
    return tuple(problems)


@_remembered
def qualified_name_problems(name: str) -> tuple[str, ...]:
    """Label keys, taint keys, binding conditions, finalizers: `name` or `example.com/name`."""
    prefix, slash, part = name.rpartition("/")
    if slash and "/" in prefix:
        return (QUALIFIED_NAME_RULE,)
    problems: list[str] = []
    if slash:
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            problems.extend(f"prefix part {problem}" for problem in subdomain_problems(prefix))
    if not part:
        problems.append("name part must be non-empty")
    elif byte_length(part) > MAX_LABEL:
        problems.append(f"name part {_too_long(MAX_LABEL)}")
    if not _is_qualified_part(part):
        problems.append(f"name part {QUALIFIED_PART_RULE}")
    return tuple(problems)


@_remembered
def label_value_problems(value: str) -> tuple[str, ...]:
    problems: list[str] = []
    if byte_length(value) > MAX_LABEL:
        problems.append(_too_long(MAX_LABEL))
    if not _is_label_value(value):
        problems.append(LABEL_VALUE_RULE)
    return tuple(problems)


def c_identifier_problems(name: str) -> tuple[str, ...]:
    return () if _is_c_identifier(name) else (C_IDENTIFIER_RULE,)


def pool_segment_problems(pool: str) -> tuple[tuple[int, str], ...]:
    """Complaints about the `/`-separated parts of a pool name, each with the index of its part."""
    return tuple((i, problem) for i, part in enumerate(pool.split("/")) for problem in subdomain_problems(part))


def is_uuid(text: str) -> bool:
    return _is_uuid(text) is not None


def is_node_allocatable(resource: str) -> bool:
    """Whether a device may map onto this resource of a node."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")
