"""Configurations that do not fit their kind are refused with all that is wrong, in the words of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.conftest import Client

from dray.api.schemas import schema_for
from dray.apiserver.write.patching.schema_patches import typed_problems


def in_pod(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", **container}]}}


GOT = "got &value.valueUnstructured{Value:"
MAIN = '.spec.containers[name="c"]'


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (in_pod(image="i", ports=[{"containerPort": 1}], tty=True), []),
        (in_pod(image=5), [f"{MAIN}.image: expected string, {GOT}5}}"]),
        (in_pod(tty="yes"), [f'{MAIN}.tty: expected boolean, {GOT}"yes"}}']),
        (in_pod(command="sh"), [f'{MAIN}.command: expected list, {GOT}"sh"}}']),
        (in_pod(resources=[1, "a"]), [f'{MAIN}.resources: expected map, {GOT}[]interface {{}}{{1, "a"}}}}']),
        (in_pod(ports=[{"containerPort": "80"}]), [f'{MAIN}.ports[containerPort="80"].containerPort: expected numeric (int or float), {GOT}"80"}}']),
        (in_pod(colour="red"), [f"{MAIN}.colour: field not declared in schema"]),
        ({"metadata": {"labels": {"a": {"b": None}}}}, [f'.metadata.labels.a: expected string, {GOT}map[string]interface {{}}{{"b":interface {{}}(nil)}}}}']),
        ({"metadata": {"finalizers": ["a/b", "a/b"]}}, ['.metadata.finalizers: duplicate entries for key [="a/b"]']),
        ({"spec": {"containers": [{"image": "i"}]}}, ['.spec.containers: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn\'t have default values for any key fields)']),
        ({"spec": {"containers": [{"name": "c"}, {"name": "c"}]}}, ['.spec.containers: duplicate entries for key [name="c"]']),
    ],
)  # fmt: skip
def test_what_does_not_fit(tree: dict[str, Any], expected: list[str]) -> None:
    schema = schema_for("v1", "Pod")
    assert schema is not None
    assert typed_problems(tree, schema) == expected


async def test_the_refusal_names_object_and_kind(server: Client) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": 5}, "extra": 1}
    path = "/api/v1/namespaces/default/configmaps/m?fieldManager=f"
    refused = await server.patch(path, body, "apply")
    assert refused.status == 400
    assert refused.body["message"] == (
        "failed to create typed patch object (default/m; /v1, Kind=ConfigMap): errors:\n"
        "  .data.a: expected string, got &value.valueUnstructured{Value:5}\n  .extra: field not declared in schema"
    )
