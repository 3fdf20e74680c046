"""Label and field selectors: parsed from text or from a LabelSelector object, and matched against labels and fields.

At the end: which fields of each kind a field selector may name, and their values.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dray.api.caching import RememberedTexts
from dray.api.names import label_value_problems, qualified_name_problems
from dray.api.safe_get import mappings, strings, text, texts
from dray.api.scheme import Resource, group_version
from dray.apiserver.errors import bad_request
from dray.apiserver.request.request_info import Document, FieldRequirement

# No real client sends longer ones, and matching them would cost time at every later event.
MAX_SELECTOR = 16_384
SPECIAL = "=!(),><"
OPERATORS = {"=": "=", "==": "=", "!=": "!=", "in": "in", "notin": "notin", ">": "gt", "<": "lt"}
END = ""


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    key: str
    operator: str  # in, notin, exists, absent, gt, lt
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        bound = int(next(iter(self.values)))
        try:
            return int(value) > bound if self.operator == "gt" else int(value) < bound
        except ValueError:
            return False


def _combined(operator: str, values: list[frozenset[str]]) -> frozenset[str]:
    """The values of one requirement that is as good as several of one key and operator."""
    if operator == "in":
        return frozenset.intersection(*values)
    every = frozenset.union(*values)
    match operator:
        case "gt":
            return frozenset({max(every, key=int)})
        case "lt":
            return frozenset({min(every, key=int)})
    return every


@dataclass(frozen=True, slots=True)
class ParsedLabelSelector:
    """Matching takes as long as an object has labels, or the selector keys, whichever are fewer: a selector can have thousands."""

    requirements: tuple[LabelRequirement, ...] = ()
    _by_key: dict[str, tuple[LabelRequirement, ...]] = field(init=False, repr=False, compare=False)
    # Keys that an object must have.
    _required: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found: dict[str, dict[str, list[frozenset[str]]]] = {}
        for term in self.requirements:
            found.setdefault(term.key, {}).setdefault(term.operator, []).append(term.values)
        by_key = {
            key: tuple(
                LabelRequirement(key, operator, _combined(operator, values)) for operator, values in terms.items()
            )
            for key, terms in found.items()
        }
        object.__setattr__(self, "_by_key", by_key)
        required = (term.key for term in self.requirements if term.operator not in ("notin", "absent"))
        object.__setattr__(self, "_required", frozenset(required))

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        if not labels.keys() >= self._required:
            return False
        by_key = self._by_key
        keys = by_key.keys() if len(by_key) < len(labels) else labels.keys()
        return all(term.matches(labels) for key in keys for term in by_key.get(key, ()))


# Text that JSON writes without escapes.
_PLAIN = re.compile(r"[A-Za-z0-9._:-]+")


@dataclass(frozen=True, slots=True)
class FieldSelector:
    requirements: tuple[FieldRequirement, ...] = ()
    # Texts that the JSON of every matching object contains.
    plain_texts: tuple[bytes, ...] = field(init=False, repr=False, compare=False)
    # Whether the value is one of these, by field and operator: a selector can have thousands of terms, but a kind has few fields.
    _values: dict[tuple[str, str], set[str]] = field(init=False, repr=False, compare=False)

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all(
            (fields.get(name, "") in values) == (operator == "=") for (name, operator), values in self._values.items()
        )

    def allows(self, field: str, value: str) -> bool:
        """Whether an object with this value in one field can match; the others are not looked at."""
        return all(
            (value in values) == (operator == "=") for (name, operator), values in self._values.items() if name == field
        )

    def exact(self, field: str) -> str | None:
        """The value the field must have, if the selector requires a single one."""
        return next((term.value for term in self.requirements if term.field == field and term.operator == "="), None)

    def __post_init__(self) -> None:
        wanted = (term.value for term in self.requirements if term.operator == "=")
        texts = (value.encode() for value in wanted if _PLAIN.fullmatch(value))
        object.__setattr__(self, "plain_texts", tuple(dict.fromkeys(texts)))
        found: dict[tuple[str, str], set[str]] = {}
        for term in self.requirements:
            found.setdefault((term.field, term.operator), set()).add(term.value)
        # No value is two of the wanted ones.
        values = {key: values if key[1] != "=" or len(values) == 1 else set() for key, values in found.items()}
        object.__setattr__(self, "_values", values)


def _parse_labels(text: str) -> ParsedLabelSelector:
    """A label selector as in `?labelSelector=`; raises 400 with the words of Kubernetes' parser."""
    if len(text) > MAX_SELECTOR:
        raise bad_request(f"label selector is too long: {len(text)} bytes, the limit is {MAX_SELECTOR}")
    return ParsedLabelSelector(tuple(sorted(_LabelParser(text).parse(), key=lambda term: term.key)))


parse_labels = RememberedTexts(_parse_labels, entries=1024, long_characters=256 * 1024)


class _Trouble(Exception):
    """A requirement that cannot be read."""


class _LabelParser:
    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), END]
        self._at = 0

    def parse(self) -> Iterator[LabelRequirement]:
        while self._next() != END:
            token = self._next()
            if token != "!" and not _is_word(token):
                raise bad_request(f"found '{token}', expected: !, identifier, or 'end of string'")
            try:
                yield self._requirement()
            except _Trouble as trouble:
                raise bad_request(f"unable to parse requirement: {trouble}") from None
            follows = self._take()
            if follows == END:
                return
            if follows != ",":
                raise bad_request(f"found '{follows}', expected: ',' or 'end of string'")
            if self._next() != "!" and not _is_word(self._next()):
                raise bad_request(f"found '{self._next()}', expected: identifier after ','")

    def _next(self) -> str:
        return self._tokens[self._at]

    def _take(self) -> str:
        token = self._tokens[self._at]
        if token != END:
            self._at += 1
        return token

    def _requirement(self) -> LabelRequirement:
        key = self._take()
        absent = key == "!"
        if absent:
            key = self._take()
        if not _is_word(key):
            raise _Trouble(f"found '{key}', expected: identifier")
        _check("<nil>", key, qualified_name_problems(key))
        if self._next() in (END, ","):
            return LabelRequirement(key, "absent" if absent else "exists")
        if absent:
            # `!key op ...`: what follows is judged by the caller
            return LabelRequirement(key, "absent")
        token = self._take()
        operator = OPERATORS.get(token)
        if operator is None:
            raise _Trouble(f"found '{token}', expected: in, notin, =, ==, !=, gt, lt")
        if operator in ("in", "notin"):
            return _requirement(key, operator, self._values())
        value = self._exact_value()
        if operator in ("gt", "lt"):
            return _comparison(key, operator, value)
        return _requirement(key, "in" if operator == "=" else "notin", [value])

    def _values(self) -> list[str]:
        if (token := self._take()) != "(":
            raise _Trouble(f"found '{token}' expected: '('")
        if self._next() == ")":
            self._take()
            return [""]
        if not _is_word(self._next()) and self._next() != ",":
            raise _Trouble(f"found '{self._next()}', expected: ',', ')' or identifier")
        values = self._list()
        if (token := self._take()) != ")":
            raise _Trouble(f"found '{token}', expected: ')'")
        return values

    def _list(self) -> list[str]:
        """Values between commas; two commas in a row enclose the empty value."""
        values = []
        while True:
            values.append(self._take() if _is_word(self._next()) else "")
            token = self._next()
            if token == ")":
                return values
            if token != ",":
                raise _Trouble(f"found '{token}', expected: ',' or ')'")
            self._take()

    def _exact_value(self) -> str:
        if self._next() in (END, ","):
            return ""
        value = self._take()
        if not _is_word(value):
            raise _Trouble(f"found '{value}', expected: identifier")
        return value


def _requirement(key: str, operator: str, values: list[str]) -> LabelRequirement:
    for at, value in enumerate(values):
        _check(f"values[{at}][{key}]", value, label_value_problems(value))
    return LabelRequirement(key, operator, frozenset(values))


def _comparison(key: str, operator: str, value: str) -> LabelRequirement:
    digits = value[1:] if value[:1] in "+-" else value
    if not digits.isdecimal() or len(digits) > 19:
        raise _Trouble(f"values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer")
    return LabelRequirement(key, operator, frozenset({value}))


def _check(path: str, value: str, problems: tuple[str, ...]) -> None:
    if problems:
        raise _Trouble(f'{path}: Invalid value: "{value}": {"; ".join(problems)}')


def _is_word(token: str) -> bool:
    return token != END and token[0] not in SPECIAL


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        if text[at] in " \t\r\n":
            at += 1
        elif text[at] in SPECIAL:
            length = 2 if text[at : at + 2] in ("==", "!=") else 1
            yield text[at : at + length]
            at += length
        else:
            end = at
            while end < len(text) and text[end] not in SPECIAL and text[end] not in " \t\r\n":
                end += 1
            yield text[at:end]
            at = end


def _parse_fields(text: str) -> FieldSelector:
    """A field selector as in `?fieldSelector=`; which fields a kind knows is checked elsewhere."""
    if len(text) > MAX_SELECTOR:
        raise bad_request(f"field selector is too long: {len(text)} bytes, the limit is {MAX_SELECTOR}")
    terms = [_field_term(text, part) for part in _split_unescaped(text) if part]
    return FieldSelector(tuple(sorted(terms, key=lambda term: (term.field, term.operator, term.value))))


parse_fields = RememberedTexts(_parse_fields, entries=1024, long_characters=256 * 1024)


def _field_term(whole: str, part: str) -> FieldRequirement:
    for at in range(len(part)):
        if part[at] == "\\":
            continue
        for operator in ("!=", "==", "="):
            if part.startswith(operator, at):
                value = _unescape(part[at + len(operator) :])
                if value is None:
                    raise bad_request(f"invalid selector: '{whole}'; can't understand '{part}'")
                return FieldRequirement(part[:at], "!=" if operator == "!=" else "=", value)
    raise bad_request(f"invalid selector: '{whole}'; can't understand '{part}'")


def _split_unescaped(text: str) -> Iterator[str]:
    start, at = 0, 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == ",":
            yield text[start:at]
            start = at + 1
        at += 1
    yield text[start:]


def _unescape(text: str) -> str | None:
    """Backslash, comma and equals sign are written with a backslash before them; None if something else is."""
    if "\\" not in text:
        return None if "=" in text else text
    out, at = [], 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
            if at >= len(text) or text[at] not in "\\,=":
                return None
        elif text[at] == "=":
            return None
        out.append(text[at])
        at += 1
    return "".join(out)


def selects(selector: Document | None, labels: Mapping[str, str]) -> bool:
    """An absent or empty selector selects everything; an unknown operator nothing."""
    if not selector:
        return True
    if any(labels.get(key) != value for key, value in texts(selector, "matchLabels").items()):
        return False
    return all(_fits(expression, labels) for expression in mappings(selector, "matchExpressions"))


def _fits(expression: Document, labels: Mapping[str, str]) -> bool:
    key, operator, values = text(expression, "key"), text(expression, "operator"), strings(expression, "values")
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    return operator == "DoesNotExist" and key not in labels


# --- the fields of each kind ------------------------------------------------------------------------------------------

FieldsOf = Callable[[Document], dict[str, str]]

# How a kind refuses a field it does not know: each group of kinds has its own words.
PLAIN = "plain"  # field label not supported: spec.x
WITH_KIND = "with kind"  # field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.x
FOR_KIND = "for kind"  # field label "spec.x" not supported for Job
META_ONLY = "metadata only"  # "spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"


def _section(document: Document, *names: str) -> Document:
    for name in names:
        document = document.get(name) or {}
    return document


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _meta(document: Document) -> dict[str, str]:
    metadata = document["metadata"]
    return {"metadata.name": metadata.get("name", ""), "metadata.namespace": metadata.get("namespace", "")}


def _pod(document: Document) -> dict[str, str]:
    spec, status = _section(document, "spec"), _section(document, "status")
    fields = _meta(document)
    for name in ("nodeName", "restartPolicy", "schedulerName", "serviceAccountName"):
        fields[f"spec.{name}"] = _text(spec.get(name))
    fields["spec.hostNetwork"] = _text(bool(spec.get("hostNetwork")))
    for name in ("phase", "nominatedNodeName"):
        fields[f"status.{name}"] = _text(status.get(name))
    ips = [_text(entry.get("ip")) for entry in status.get("podIPs") or () if isinstance(entry, dict)]
    fields["status.podIP"] = fields["status.podIPs"] = ips[0] if ips else _text(status.get("podIP"))
    return fields


def _slice(document: Document) -> dict[str, str]:
    spec = _section(document, "spec")
    return {
        **_meta(document),
        "spec.nodeName": _text(spec.get("nodeName")),
        "spec.driver": _text(spec.get("driver")),
        "spec.pool.name": _text(_section(spec, "pool").get("name")),
    }


EVENT_OBJECT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _event(document: Document) -> dict[str, str]:
    involved, source = _section(document, "involvedObject"), _section(document, "source")
    return {
        **_meta(document),
        **{f"involvedObject.{name}": _text(involved.get(name)) for name in EVENT_OBJECT},
        "reason": _text(document.get("reason")),
        "reportingComponent": _text(document.get("reportingComponent")),
        "source": _text(source.get("component")) or _text(document.get("reportingComponent")),
        "type": _text(document.get("type")),
    }


def _namespace(document: Document) -> dict[str, str]:
    return {**_meta(document), "status.phase": _text(_section(document, "status").get("phase"))}


def _secret(document: Document) -> dict[str, str]:
    return {**_meta(document), "type": _text(document.get("type"))}


def _service(document: Document) -> dict[str, str]:
    spec = _section(document, "spec")
    return {**_meta(document), "spec.clusterIP": _text(spec.get("clusterIP")), "spec.type": _text(spec.get("type"))}


def _node(document: Document) -> dict[str, str]:
    return {
        **_meta(document),
        "spec.unschedulable": _text(bool(_section(document, "spec").get("unschedulable"))),
    }


def _replication_controller(document: Document) -> dict[str, str]:
    return {**_meta(document), "status.replicas": _text(_section(document, "status").get("replicas") or 0)}


def _job(document: Document) -> dict[str, str]:
    return {**_meta(document), "status.successful": _text(_section(document, "status").get("succeeded") or 0)}


def _of_spec(*names: str) -> FieldsOf:
    def fields(document: Document) -> dict[str, str]:
        spec = _section(document, "spec")
        return {**_meta(document), **{f"spec.{name}": _text(spec.get(name)) for name in names}}

    return fields


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a kind that may be selected, the words that refuse an unknown field, and other names for fields."""

    of: FieldsOf = _meta
    refusal: str = META_ONLY
    aliases: tuple[tuple[str, str], ...] = ()
    # Fields of `of` that cannot be selected by these names.
    hidden: frozenset[str] = frozenset()


META = Fields()
FIELDS: dict[tuple[str, str], Fields] = {
    ("", "pods"): Fields(_pod, PLAIN, (("spec.host", "spec.nodeName"),)),
    ("", "nodes"): Fields(_node, PLAIN),
    ("", "namespaces"): Fields(_namespace, PLAIN),
    ("", "secrets"): Fields(_secret, PLAIN),
    ("", "services"): Fields(_service, PLAIN),
    ("", "events"): Fields(_event, PLAIN),
    ("events.k8s.io", "events"): Fields(
        _event,
        PLAIN,
        (
            *((f"regarding.{name}", f"involvedObject.{name}") for name in EVENT_OBJECT),
            ("reportingController", "reportingComponent"),
        ),
        frozenset({*(f"involvedObject.{name}" for name in EVENT_OBJECT), "reportingComponent", "source"}),
    ),
    ("resource.k8s.io", "resourceslices"): Fields(_slice, WITH_KIND),
    ("", "replicationcontrollers"): Fields(_replication_controller, PLAIN),
    ("batch", "jobs"): Fields(_job, FOR_KIND),
    ("certificates.k8s.io", "certificatesigningrequests"): Fields(_of_spec("signerName"), PLAIN),
    ("certificates.k8s.io", "clustertrustbundles"): Fields(_of_spec("signerName"), PLAIN),
    ("certificates.k8s.io", "podcertificaterequests"): Fields(
        _of_spec("signerName", "podName", "nodeName"), PLAIN, hidden=frozenset({"metadata.namespace"})
    ),
}


def fields_of(row: Resource) -> FieldsOf:
    if row.custom is not None:
        own: FieldsOf = row.custom.selectable_fields
        return own
    return FIELDS.get((row.group, row.plural), META).of


def _known(fields: Fields) -> frozenset[str]:
    """The names by which the fields can be selected."""
    aliases = (alias for alias, _ in fields.aliases)
    return frozenset({*fields.of({"metadata": {"name": ""}}), *aliases}) - fields.hidden


KNOWN = {key: _known(fields) for key, fields in FIELDS.items()}
META_FIELDS = _known(META)


def checked(row: Resource, version: str, selector: FieldSelector) -> FieldSelector:
    """The selector with other names resolved; raises 400 if the kind cannot be selected by one of its fields."""
    if not selector:
        return selector
    if row.custom is not None:
        for term in selector.requirements:
            if not row.custom.knows_field(version, term.field):
                raise bad_request(f"field label not supported: {term.field}")
        return selector
    key = (row.group, row.plural)
    fields, known = FIELDS.get(key, META), KNOWN.get(key, META_FIELDS)
    aliases = dict(fields.aliases)
    terms = []
    for term in selector.requirements:
        no_namespace = not row.namespaced and term.field == "metadata.namespace" and fields.refusal != META_ONLY
        if term.field not in known or no_namespace:
            raise bad_request(_refusal(row, version, fields.refusal, term.field))
        terms.append(FieldRequirement(aliases.get(term.field, term.field), term.operator, term.value))
    return FieldSelector(tuple(terms))


def _refusal(row: Resource, version: str, style: str, field: str) -> str:
    if style == PLAIN:
        return f"field label not supported: {field}"
    if style == FOR_KIND:
        return f'field label "{field}" not supported for {row.kind}'
    if style == WITH_KIND:
        return f"field label not supported for {group_version(row.group, version)}, Kind={row.kind}: {field}"
    return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
