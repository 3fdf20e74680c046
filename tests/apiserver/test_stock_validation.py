"""What a stock API server says about valid and invalid objects: recorded from Kubernetes 1.37, kind by kind.

A file has a manifest and cases. A case says what it does (`create`, or `update` of an object that `from` changed before it
was created), which fields it sets (null removes one), the status code, and the errors.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.conftest import Client

from dray.api.scheme import RESOURCES

RECORDED = sorted((Path(__file__).parent / "data" / "stock_kinds").glob("*.json"))
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def changed(manifest: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(manifest)
    for path, value in fields.items():
        place: Any = made
        *above, last = [int(step) if step.isdigit() else step for step in path.split("|")]
        for step in above:
            if isinstance(place, dict) and place.get(step) is None:
                place[step] = {}
            place = place[step]
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return made


def collection(manifest: dict[str, Any]) -> str:
    group, _, version = manifest["apiVersion"].rpartition("/")
    (row,) = [row for row in RESOURCES if row.kind == manifest["kind"] and row.group == group]
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{root}/namespaces/default/{row.plural}" if row.namespaced else f"{root}/{row.plural}"


async def answer(server: Client, manifest: dict[str, Any], case: dict[str, Any], name: str) -> Any:
    path = collection(manifest)
    named = {**manifest, "metadata": {**manifest.get("metadata", {}), "name": name}}
    if case["do"] == "create":
        return await server.post(f"{path}?dryRun=All", changed(named, case["set"]))
    made = await server.post(path, changed(named, case.get("from", {})))
    assert made.status == 201, made.body
    return await server.send("PUT", f"{path}/{name}?dryRun=All", changed(made.body, case["set"]))


def errors_of(body: dict[str, Any], name: str) -> list[list[str]]:
    causes = (body.get("details") or {}).get("causes") or []
    return [
        [each["reason"], each.get("field", ""), _UID.sub("UID", each["message"]).replace(name, "NAME")]
        for each in causes
    ]


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
async def test_answers_as_recorded(server: Client, file: Path) -> None:
    recorded = json.loads(file.read_text())
    for number, case in enumerate(recorded["cases"]):
        name = f"{file.stem.lower()}-case-{number}"
        given = await answer(server, recorded["manifest"], case, name)
        said = (given.status, errors_of(given.body, name) if given.status == 422 else [])
        assert said == (case["status"], case.get("errors", [])), case
