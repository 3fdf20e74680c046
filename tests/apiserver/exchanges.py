"""Sends recorded exchanges to a server and says where its answers differ from the recorded ones.

The file (`data/http.ndjson`) holds one exchange per line: a request, and what Kubernetes 1.37 answered. Lines of a group
belong together and run in order. Values that differ from run to run are placeholders: `<uid-1>` is the same UID throughout its
group, `<rv-2>` a resource version (a higher number came later), `<time>`, `<age>`, `<any>` and so on are matched by their form.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import urllib3

Json = Any
USER_AGENT = "recorder/1.0"
IGNORED = {"storageVersionHash"}
WIDTH = 300

# ---- talking to the server -------------------------------------------------------------------------------------


def settings(text: str) -> dict[str, str]:
    """The few scalars of a one-cluster kubeconfig (JSON or YAML), read without a YAML library."""
    pattern = re.compile(r'[\s{,"]([a-z-]+)"?:[ \t]*"?([^\s",{}\[\]]+)"?')
    wanted = {
        "server",
        "token",
        "certificate-authority",
        "certificate-authority-data",
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
    }
    return {key: value for key, value in pattern.findall("\n" + text) if key in wanted}


class Server:
    """One API server: a connection pool with the administrator's credentials and one without any."""

    def __init__(self, kubeconfig: Path) -> None:
        urllib3.disable_warnings()
        found = settings(kubeconfig.read_text())
        self.url, self.token = found["server"].rstrip("/"), found.get("token")

        def file_of(key: str) -> str | None:
            if data := found.get(f"{key}-data"):
                with tempfile.NamedTemporaryFile("wb", delete=False, suffix=".pem") as out:
                    out.write(base64.b64decode(data))
                return out.name
            return str(kubeconfig.parent / found[key]) if key in found else None

        common = {"cert_reqs": "CERT_NONE", "retries": False, "maxsize": 8}
        cert, key = file_of("client-certificate"), file_of("client-key")
        self.pool = urllib3.PoolManager(cert_file=cert, key_file=key, **common)
        self.anonymous = urllib3.PoolManager(**common)

    def send(self, request: Json) -> Json:
        """The answer as it is stored in a record: status, contentType, warnings and body, text or events."""
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json"} | request.get("headers", {})
        pool, auth = self.pool, request.get("auth", "admin")
        if auth == "none":
            pool = self.anonymous
        elif auth != "admin":
            pool, headers["Authorization"] = self.anonymous, auth
        elif self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        reply = pool.request(
            request["method"],
            self.url + request["path"],
            headers=headers,
            body=payload(request),
            preload_content=False,
            redirect=False,
            timeout=urllib3.Timeout(connect=10, read=70),
        )
        answer: Json = {"status": reply.status, "contentType": reply.headers.get("Content-Type", "")}
        if warnings := reply.headers.getlist("Warning"):
            answer["warnings"] = warnings
        if challenge := reply.headers.get("WWW-Authenticate"):
            answer["authenticate"] = challenge
        watching = "watch=" in request["path"] and reply.status == 200
        data = reply.read()
        reply.release_conn()
        if watching:
            answer["events"] = [json.loads(line) for line in data.splitlines() if line.strip()]
        else:
            try:
                answer["body"] = json.loads(data)
            except ValueError:
                answer["text"] = data.decode("utf-8", "replace")
        return answer


def payload(request: Json) -> bytes | None:
    if "body" in request:
        return json.dumps(request["body"], ensure_ascii=False).encode()
    raw = request.get("raw")
    if isinstance(raw, dict):
        raw = raw["before"] + raw["repeat"] * raw["times"] + raw["after"]
    return None if raw is None else raw.encode()


# ---- placeholders ----------------------------------------------------------------------------------------------

SHAPES = {
    "uid": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "rv": r"\d+",
    "listrv": r"\d+",
    "n": r"\d+",
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "microtime": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z",
    "rand": r"[a-z0-9]+",
    "continue": r"[A-Za-z0-9_=.+/-]+",
    "token": r"[A-Za-z0-9_=.-]+",
    "host": r"[^\s/]+",
    "age": r"(?:\d+[smhdy])+|<unknown>|<invalid>",
    "any": r"[\s\S]*",
}
PLACEHOLDER = re.compile(r"<(" + "|".join(SHAPES) + r")(?:-(\d+))?>")


class Bindings:
    """What the placeholders of one group stand for on this server."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def fill(self, value: Json) -> Json:
        if isinstance(value, dict):
            return {self.fill(key): self.fill(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self.fill(entry) for entry in value]
        if isinstance(value, str):
            return PLACEHOLDER.sub(lambda found: self.values.get(found[0], found[0]), value)
        return value

    def match(self, expected: str, actual: str) -> bool:
        """Does the text fit the pattern? Numbered placeholders are remembered, and then stand for one value."""
        pattern, names, at = "", [], 0
        for found in PLACEHOLDER.finditer(expected):
            pattern += re.escape(expected[at : found.start()]) + f"({SHAPES[found[1]]})"
            names.append((found[1], found[2], found[0]))
            at = found.end()
        fits = re.fullmatch(pattern + re.escape(expected[at:]), actual)
        if not fits:
            return False
        for (kind, number, name), value in zip(names, fits.groups(), strict=True):
            if not number:
                continue
            if kind != "listrv" and self.values.get(name, value) != value:
                return False
            if kind == "rv" and name not in self.values and not self.in_order(int(number), int(value)):
                return False
            self.values[name] = value
        return True

    def in_order(self, number: int, value: int) -> bool:
        """Resource versions grow in the same order as in the recording."""
        for name, other in self.values.items():
            if name.startswith("<rv-"):
                rank = int(name[4:-1])
                if (rank < number and int(other) >= value) or (rank > number and int(other) <= value):
                    return False
        return True


# ---- comparing -------------------------------------------------------------------------------------------------


class Comparison:
    """Walks the expected answer and notes what differs."""

    def __init__(self, bound: Bindings, managed_fields: bool, partial: bool) -> None:
        self.bound, self.managed_fields, self.partial = bound, managed_fields, partial
        self.found: list[str] = []

    def differ(self, path: str, expected: Json, actual: Json) -> None:
        self.found.append(f"{path or '/'}: expected {short(expected)} got {short(actual)}")

    def same(self, expected: Json, actual: Json, path: str = "") -> None:
        if isinstance(expected, str) and isinstance(actual, str):
            if not self.bound.match(expected, actual) and not (
                path.endswith(".message") and parts(self.bound.fill(expected)) == parts(actual)
            ):
                self.differ(path, self.bound.fill(expected), actual)
        elif isinstance(expected, dict) and isinstance(actual, dict):
            self.same_object(expected, actual, path)
        elif isinstance(expected, list) and isinstance(actual, list):
            self.same_list(expected, actual, path)
        elif type(expected) is not type(actual) or expected != actual:
            self.differ(path, expected, actual)

    def same_object(self, expected: Json, actual: Json, path: str) -> None:
        # names and uids first, so that placeholders are known where they are only mentioned
        for key in sorted(expected, key=lambda key: (key not in ("metadata", "uid", "name"), key)):
            if key in IGNORED:
                continue
            if key == "managedFields":
                self.same(
                    managers(expected[key], self.managed_fields),
                    managers(actual.get(key) or [], self.managed_fields),
                    f"{path}.{key}",
                )
            elif key not in actual:
                self.found.append(f"{path}.{key}: missing, expected {short(expected[key])}")
            elif key == "causes":
                self.same(causes(expected[key]), causes(actual[key]), f"{path}.{key}")
            else:
                self.same(expected[key], actual[key], f"{path}.{key}")
        if self.partial and path.endswith(".paths"):
            return
        for key in sorted(actual.keys() - expected.keys() - IGNORED):
            self.found.append(f"{path}.{key}: not expected, got {short(actual[key])}")

    def same_list(self, expected: list[Json], actual: list[Json], path: str) -> None:
        named = [identity(entry) for entry in expected]
        if (
            expected
            and all(named)
            and path.rsplit(".", 1)[-1] in ("items", "rows", "groups", "resources", "versions", "subresources")
        ):
            self.same_set(dict(zip(named, expected, strict=True)), actual, path)
            return
        if len(expected) != len(actual):
            self.differ(f"{path}(length)", expected, actual)
        for index, (one, other) in enumerate(zip(expected, actual, strict=False)):
            self.same(one, other, f"{path}[{index}]")

    def same_set(self, expected: dict[str, Json], actual: list[Json], path: str) -> None:
        """Entries with names, in any order; generated names are matched by their pattern."""
        left = {identity(entry) or "?": entry for entry in actual}
        for name, entry in expected.items():
            key = next((key for key in left if self.bound.match(name, key)), None)
            if key is None:
                self.found.append(f"{path}[{name}]: missing")
            else:
                self.same(entry, left.pop(key), f"{path}[{name}]")
        if left and not self.partial:
            self.found.append(f"{path}: not expected: {short(sorted(left))}")


def identity(entry: Json) -> str | None:
    """What tells an entry of a list from the others, if it has a name."""
    if not isinstance(entry, dict):
        return None
    meta = entry.get("metadata") or (entry.get("object") or {}).get("metadata") or {}
    if "name" in meta:
        return f"{entry.get('kind', '')}/{meta.get('namespace', '')}/{meta['name']}"
    return entry.get("name") or entry.get("resource") or entry.get("subresource") or entry.get("version")


def managers(entries: list[Json], whole: bool) -> list[str]:
    keys = ["manager", "operation", "subresource"] + (["apiVersion", "fieldsType", "fieldsV1"] if whole else [])
    return sorted(json.dumps({key: entry[key] for key in keys if key in entry}, sort_keys=True) for entry in entries)


def causes(entries: list[Json]) -> list[str]:
    return sorted(f"{entry.get('field', '')} {entry.get('reason', '')}" for entry in entries)


def parts(message: str) -> list[str]:
    """Several errors in one message have no order."""
    return sorted(re.sub(r": \[(.*)\]$", r", \1", message).split(", "))


def short(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= WIDTH else text[:WIDTH] + "…"


def without_bookmarks(events: list[Json]) -> list[Json]:
    """Periodic bookmarks come when the server likes; the one that ends the initial events counts."""
    return [
        event
        for event in events
        if event.get("type") != "BOOKMARK"
        or "k8s.io/initial-events-end" in event["object"]["metadata"].get("annotations", {})
    ]


def initial_sorted(events: list[Json]) -> list[Json]:
    """Initial events have no order among themselves."""
    ends = [at for at, event in enumerate(events) if event["type"] == "BOOKMARK"]
    cut = ends[0] if ends else 0
    return sorted(events[:cut], key=lambda event: event["object"]["metadata"]["name"]) + events[cut:]


def compare(record: Json, answer: Json, bound: Bindings, managed_fields: bool = False) -> list[str]:
    expected, rule = record["response"], record.get("compare", "")
    check = Comparison(bound, managed_fields, rule == "partial")
    check.same(expected["status"], answer["status"], "status")
    if check.found and "body" in answer and answer["body"] != expected.get("body"):
        return [
            *check.found,
            f"body: expected {short(expected.get('body', expected.get('events')))} got {short(answer['body'])}",
        ]
    check.same(expected["contentType"], answer["contentType"], "content-type")
    for key in ("warnings", "authenticate", "text"):
        check.same(expected.get(key), answer.get(key), key)
    if "events" in expected:
        check.same(
            initial_sorted(without_bookmarks(expected["events"])),
            initial_sorted(without_bookmarks(answer.get("events", []))),
            "events",
        )
    check.same(expected.get("body"), answer.get("body"), "body")
    return check.found


# ---- running ---------------------------------------------------------------------------------------------------


class Background:
    """A watch that stays open while other requests are sent."""

    def __init__(self, send: Callable[[Json], Json], request: Json) -> None:
        self.answer: Json = None
        self.thread = threading.Thread(target=self.run, args=(send, request), daemon=True)
        self.thread.start()
        time.sleep(0.5)

    def run(self, send: Callable[[Json], Json], request: Json) -> None:
        self.answer = attempt(send, request)

    def join(self) -> Json:
        self.thread.join(60)
        return self.answer or {"status": 0, "contentType": "", "text": "watch did not end"}


def attempt(send: Callable[[Json], Json], request: Json) -> Json:
    try:
        return send(request)
    except (urllib3.exceptions.HTTPError, ValueError, OSError) as error:
        return {"status": 0, "contentType": "", "text": f"{type(error).__name__}: {error}"}


def run_group(server: Server, records: list[Json], managed_fields: bool) -> Iterator[tuple[Json, list[str]]]:
    bound, watches = Bindings(), {}
    for record in records:
        time.sleep(record.get("wait", 0))
        if "start" in record:
            watches[record["start"]] = Background(server.send, bound.fill(record["request"]))
            continue
        if "end" in record:
            answer = watches[record["end"]].join()
        else:
            answer = attempt(server.send, bound.fill(record["request"]))
        yield record, compare(record, answer, bound, managed_fields)
