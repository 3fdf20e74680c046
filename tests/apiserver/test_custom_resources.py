"""CustomResourceDefinitions: kinds that come and go while the server runs, and the objects of these kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.apiserver.conftest import Answer, Client
from tests.waiting import eventually

from dray.apiserver.assembly import ServerOptions, start_server
from dray.store.sqlite import SqliteStore

Document = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "stable.example.com"
TABS = f"/apis/{GROUP}/v1/namespaces/default/crontabs"
SPEC: Document = {
    "type": "object",
    "properties": {
        "schedule": {"type": "string", "pattern": r"^(\S+ ){4}\S+$"},
        "replicas": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
        "image": {"type": "string", "maxLength": 20},
        "mode": {"type": "string", "enum": ["once", "always"]},
        "ports": {
            "type": "array",
            "maxItems": 5,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "port": {"x-kubernetes-int-or-string": True}},
            },
        },
        "labels": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "string"}},
        "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    },
}


def a_version(name: str = "v1", spec: Document | None = None, **more: Any) -> Document:
    schema = {
        "type": "object",
        "properties": {
            "spec": spec or SPEC,
            "status": {
                "type": "object",
                "properties": {
                    "ready": {"type": "integer"},
                    "replicas": {"type": "integer"},
                    "selector": {"type": "string"},
                },
            },
        },
    }
    return {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **more}


def a_definition(*versions: Document, plural: str = "crontabs", kind: str = "CronTab", **spec: Any) -> Document:
    names = {"plural": plural, "kind": kind, "shortNames": spec.pop("shortNames", [])}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": names,
            "versions": list(versions) or [a_version()],
            **spec,
        },
    }


def a_tab(name: str = "t", **more: Any) -> Document:
    return {"apiVersion": f"{GROUP}/v1", "kind": "CronTab", "metadata": {"name": name}, **more}


async def condition(client: Client, kind: str, name: str = f"crontabs.{GROUP}") -> tuple[str, str]:
    body = (await client.get(f"{DEFINITIONS}/{name}")).body
    for entry in body.get("status", {}).get("conditions") or ():
        if entry["type"] == kind:
            return entry["status"], entry["reason"]
    return "", ""


async def define(client: Client, definition: Document | None = None) -> Document:
    definition = definition or a_definition()
    answer = await client.post(DEFINITIONS, definition)
    assert answer.status == 201, answer.body
    name = definition["metadata"]["name"]

    async def is_established() -> bool:
        return (await condition(client, "Established", name))[0] == "True"

    await eventually(is_established, "the definition to be established")
    body: Document = (await client.get(f"{DEFINITIONS}/{name}")).body
    return body


# --- from a definition to a kind -------------------------------------------------------------------------------------


async def test_a_definition_is_established_and_its_kind_is_served(server: Client) -> None:
    assert (await server.get(TABS)).status == 404
    made = await define(server, a_definition(shortNames=["ct"]))
    assert made["spec"]["names"]["singular"] == "crontab"
    assert made["spec"]["names"]["listKind"] == "CronTabList"
    assert made["spec"]["conversion"] == {"strategy": "None"}
    assert made["status"]["storedVersions"] == ["v1"]
    assert made["status"]["acceptedNames"]["plural"] == "crontabs"
    assert [entry["type"] for entry in made["status"]["conditions"]] == ["NamesAccepted", "Established"]
    listed = await server.get(TABS)
    assert (listed.status, listed.body["kind"], listed.body["items"]) == (200, "CronTabList", [])
    resources = (await server.get(f"/apis/{GROUP}/v1")).body["resources"]
    assert [(entry["name"], entry["kind"], entry["shortNames"]) for entry in resources] == [
        ("crontabs", "CronTab", ["ct"])
    ]
    groups = [group["name"] for group in (await server.get("/apis")).body["groups"]]
    assert GROUP in groups
    aggregated = await server.get(
        "/apis", accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    )
    assert GROUP in [item["metadata"]["name"] for item in aggregated.body["items"]]


async def test_objects_are_created_read_changed_watched_and_deleted(server: Client) -> None:
    await define(server)
    made = await server.post(TABS, a_tab(spec={"schedule": "* * * * *"}))
    assert made.status == 201, made.body
    assert made.body["spec"] == {"schedule": "* * * * *", "replicas": 1}
    assert made.body["metadata"]["generation"] == 1
    events = await server.watch(f"{TABS}?watch=true&resourceVersion={made.body['metadata']['resourceVersion']}")
    patched = await server.patch(f"{TABS}/t", {"spec": {"replicas": 3}})
    assert (patched.status, patched.body["metadata"]["generation"]) == (200, 2)
    labelled = await server.patch(f"{TABS}/t", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.body["metadata"]["generation"] == 2
    json_patched = await server.patch(f"{TABS}/t", [{"op": "replace", "path": "/spec/replicas", "value": 4}], "json")
    assert json_patched.body["spec"]["replicas"] == 4
    refused = await server.send("PUT", f"{TABS}/t", a_tab(spec={"replicas": 5}))
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in refused.body["message"]
    replaced = await server.send("PUT", f"{TABS}/t", {**json_patched.body, "spec": {"replicas": 5}})
    assert (replaced.status, replaced.body["spec"]) == (200, {"replicas": 5})
    assert (await server.get(f"{TABS}?labelSelector=a=b")).body["items"][0]["metadata"]["name"] == "t"
    assert (await server.send("DELETE", f"{TABS}/t")).status == 200
    assert (await server.get(f"{TABS}/t")).status == 404
    assert await events.take(5) == [("MODIFIED", "t")] * 4 + [("DELETED", "t")]


async def test_a_body_must_say_what_it_is(server: Client) -> None:
    await define(server)
    answer = await server.post(TABS, {"metadata": {"name": "t"}})
    assert answer.status == 400
    assert (
        "the object provided is unrecognized (must be of type CronTab): Object 'Kind' is missing in"
        in answer.body["message"]
    )
    other = await server.post(TABS, {**a_tab(), "apiVersion": "v1"})
    assert (
        other.body["message"]
        == f"the API version in the data (v1) does not match the expected API version ({GROUP}/v1)"
    )


async def test_strategic_patches_and_protobuf_are_not_for_such_kinds(server: Client) -> None:
    await define(server)
    await server.post(TABS, a_tab())
    answer = await server.patch(f"{TABS}/t", {"spec": {"replicas": 3}}, "strategic-merge")
    assert (answer.status, answer.body["reason"]) == (415, "UnsupportedMediaType")
    read = await server.get(f"{TABS}/t", accept="application/vnd.kubernetes.protobuf, application/json")
    assert (read.status, read.body["kind"]) == (200, "CronTab")


async def test_a_kind_with_the_name_of_a_built_in_one_has_nothing_of_it(server: Client) -> None:
    await define(
        server,
        a_definition(
            a_version(spec={"type": "object", "properties": {"size": {"type": "integer"}}}), plural="pods", kind="Pod"
        ),
    )
    made = await server.post(
        f"/apis/{GROUP}/v1/namespaces/default/pods",
        {"kind": "Pod", "apiVersion": f"{GROUP}/v1", "metadata": {"name": "p"}, "spec": {"size": 1}},
    )
    assert made.status == 201, made.body
    assert made.body["spec"] == {"size": 1}
    assert "status" not in made.body


# --- schemas ---------------------------------------------------------------------------------------------------------


async def test_unknown_fields_are_pruned_and_named(server: Client) -> None:
    await define(server)
    spec = {"schedule": "* * * * *", "wrong": 1, "ports": [{"name": "a", "oops": 2}], "raw": {"any": {"thing": 1}}}
    answer = await server.post(f"{TABS}?fieldValidation=Warn", a_tab(spec=spec, other=1))
    assert answer.status == 201, answer.body
    assert answer.warnings == [f'unknown field "{field}"' for field in ("other", "spec.ports[0].oops", "spec.wrong")]
    assert answer.body["spec"]["raw"] == {"any": {"thing": 1}}
    assert "wrong" not in answer.body["spec"]
    assert (await server.post(TABS, a_tab("null", spec={"image": None}))).body["spec"] == {"replicas": 1}
    strict = await server.post(f"{TABS}?fieldValidation=Strict", a_tab("u", spec=spec))
    assert strict.status == 400
    assert (
        'strict decoding error: unknown field "spec.ports[0].oops", unknown field "spec.wrong"'
        in strict.body["message"]
    )


BAD_VALUES: list[tuple[Any, str]] = [
    ({"replicas": "3"}, 'spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"'),
    ({"replicas": 0}, "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1"),
    ({"replicas": 11}, "spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10"),
    ({"replicas": 1.5}, 'spec.replicas: Invalid value: "number": spec.replicas in body must be of type integer: "number"'),
    ({"schedule": "x"}, r"spec.schedule: Invalid value: \"x\": spec.schedule in body should match '^(\S+ ){4}\S+$'".replace('\\"', '"')),
    ({"image": "x" * 21}, "spec.image: Too long: may not be more than 20 bytes"),
    ({"mode": "never"}, 'spec.mode: Unsupported value: "never": supported values: "once", "always"'),
    ({"ports": [{"port": 1}]}, "spec.ports[0].name: Required value"),
    ({"ports": [{"name": "a"}, {"name": "a"}]}, 'spec.ports[1]: Duplicate value: {"name":"a"}'),
    ({"ports": [{"name": "a", "port": True}]}, "spec.ports[0].port in body must be of type integer,string: \"boolean\""),
    ({"tags": ["a", "a"]}, 'spec.tags[1]: Duplicate value: "a"'),
    ({"labels": {"a": 1}}, 'spec.labels.a: Invalid value: "integer": spec.labels.a in body must be of type string: "integer"'),
    ({"labels": {str(i): "" for i in range(6)}}, "spec.labels: Too many: 6: must have at most 5 items"),
    ([], 'spec: Invalid value: "array": spec in body must be of type object: "array"'),
]  # fmt: skip


async def test_values_are_judged_in_the_words_of_kubernetes(server: Client) -> None:
    await define(server)
    for spec, problem in BAD_VALUES:
        answer = await server.post(TABS, a_tab(spec=spec))
        assert (answer.status, answer.body["reason"]) == (422, "Invalid"), answer.body
        assert problem in answer.body["message"]
        assert answer.body["message"].startswith(f'CronTab.{GROUP} "t" is invalid: ')


async def test_what_an_update_leaves_alone_is_not_judged_again(server: Client) -> None:
    made = await define(server)
    await server.post(TABS, a_tab(spec={"image": "long-enough-image", "replicas": 2}))
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["image"][
        "maxLength"
    ] = 5
    changed = await server.send("PUT", f"{DEFINITIONS}/crontabs.{GROUP}", made)
    assert changed.status == 200, changed.body
    await server.core.fresh()
    assert (await server.patch(f"{TABS}/t", {"spec": {"replicas": 3}})).status == 200
    assert (await server.patch(f"{TABS}/t", {"spec": {"image": "another-image"}})).status == 422


async def test_alternatives(server: Client) -> None:
    spec = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        "not": {"properties": {"a": {"enum": ["bad"]}}, "required": ["a"]},
    }
    await define(server, a_definition(a_version(spec=spec)))
    assert (await server.post(TABS, a_tab("ok", spec={"a": "x"}))).status == 201
    none = await server.post(TABS, a_tab(spec={}))
    assert '"spec" must validate one and only one schema (oneOf). Found none valid' in none.body["message"]
    both = await server.post(TABS, a_tab(spec={"a": "x", "b": "y"}))
    assert "Found 2 valid alternatives" in both.body["message"]
    bad = await server.post(TABS, a_tab(spec={"a": "bad"}))
    assert '"spec" must not validate the schema (not)' in bad.body["message"]


async def test_defaults_come_with_the_definition_also_for_stored_objects(server: Client) -> None:
    spec = {
        "type": "object",
        "properties": {"nested": {"type": "object", "default": {}, "properties": {"x": {"type": "integer"}}}},
    }
    made = await define(server, a_definition(a_version(spec=spec)))
    await server.post(TABS, a_tab(spec={}))
    nested = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["nested"]
    nested["properties"]["x"]["default"] = 7
    assert (await server.send("PUT", f"{DEFINITIONS}/crontabs.{GROUP}", made)).status == 200
    await server.core.fresh()
    assert (await server.get(f"{TABS}/t")).body["spec"] == {"nested": {"x": 7}}


# --- rules in CEL ----------------------------------------------------------------------------------------------------


def with_rules(*rules: Document, **more: Any) -> Document:
    properties = {
        "least": {"type": "integer"},
        "most": {"type": "integer"},
        "name": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "may not change"}]},
        "ratio": {"type": "number"},
        "a-b": {"type": "string", "maxLength": 5},
        "until": {"type": "string", "format": "date-time", "maxLength": 40},
        "items": {
            "type": "array", "maxItems": 10, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"],
            "items": {
                "type": "object", "required": ["key"],
                "properties": {"key": {"type": "string", "maxLength": 10}, "count": {"type": "integer"}},
                "x-kubernetes-validations": [{"rule": "!has(oldSelf.count) || self.count >= oldSelf.count", "messageExpression": "'count of ' + self.key + ' may only grow'"}],
            },
        },
        **more,
    }  # fmt: skip
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": list(rules)}
    return a_definition(a_version(spec=spec))


async def test_rules_judge_objects_and_changes(server: Client) -> None:
    order = {
        "rule": "!has(self.least) || !has(self.most) || self.least <= self.most",
        "message": "least must not exceed most",
        "fieldPath": ".least",
    }
    spelled = {"rule": "!has(self.a__dash__b) || self.a__dash__b.startsWith('x')"}
    halves = {"rule": "!has(self.ratio) || self.ratio / 2.0 < 1.0", "reason": "FieldValueForbidden"}
    times = {"rule": "!has(self.until) || self.until > timestamp('2020-01-01T00:00:00Z')"}
    await define(server, with_rules(order, spelled, halves, times))
    path = f"{TABS}/t"
    made = await server.post(
        TABS,
        a_tab(
            spec={
                "least": 1,
                "most": 2,
                "name": "n",
                "ratio": 1,
                "a-b": "xy",
                "until": "2021-01-01T00:00:00Z",
                "items": [{"key": "k", "count": 3}],
            }
        ),
    )
    assert made.status == 201, made.body
    refusals = {
        "spec.least: Invalid value: least must not exceed most": {"least": 3},
        'spec.name: Invalid value: "m": may not change': {"name": "m"},
        "spec: Invalid value: failed rule: !has(self.a__dash__b)": {"a-b": "no"},
        "spec: Forbidden: failed rule: !has(self.ratio)": {"ratio": 2},
        "spec: Invalid value: failed rule: !has(self.until)": {"until": "2019-01-01T00:00:00Z"},
        "spec.items[0]: Invalid value: count of k may only grow": {"items": [{"key": "k", "count": 2}]},
    }
    for problem, spec in refusals.items():
        answer = await server.patch(path, {"spec": spec})
        assert answer.status == 422, (problem, answer.body)
        assert problem in answer.body["message"]
    assert (
        await server.patch(path, {"spec": {"items": [{"key": "k", "count": 4}, {"key": "new", "count": 0}]}})
    ).status == 200


BAD_RULES: list[tuple[Any, str]] = [
    ("self.least <", "compilation failed"),
    ("self.missing == 1", "undefined field 'missing'"),
    ("self.least", "cel expression must evaluate to a bool"),
    ("self.name + 1 == 'x'", "compilation failed"),
]


async def test_rules_that_do_not_compile_are_refused(server: Client) -> None:
    for rule, problem in BAD_RULES:
        answer = await server.post(DEFINITIONS, with_rules({"rule": rule}))
        assert answer.status == 422
        where = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
        assert where in answer.body["message"]
        assert problem in answer.body["message"]


async def test_a_rule_that_may_cost_too_much_is_refused(server: Client) -> None:
    many = {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}
    rule = {"rule": "self.many.all(a, a.all(b, self.many.all(c, c.all(d, d != b))))"}
    answer = await server.post(DEFINITIONS, with_rules(rule, many=many))
    assert answer.status == 422
    assert (
        "Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule"
        in answer.body["message"]
    )


async def test_a_rule_that_costs_too_much_ends_the_checks(server: Client) -> None:
    numbers = {"type": "array", "maxItems": 3000, "items": {"type": "integer"}}
    rule = {"rule": "self.numbers.all(a, self.numbers.all(b, a != b || a == b))"}
    definition = with_rules(rule, numbers={**numbers, "maxItems": 300})
    await define(server, definition)
    answer = await server.post(TABS, a_tab(spec={"numbers": list(range(300))}))
    assert answer.status in (201, 422)


# --- definitions with mistakes ---------------------------------------------------------------------------------------


def _changed(path: str, value: Any) -> Document:
    definition = a_definition(a_version(spec={"type": "object", "properties": {"a": {"type": "string"}}}))
    target: Any = definition
    *steps, last = path.split("/")
    for step in steps:
        target = target[int(step)] if step.isdigit() else target[step]
    target[last] = value
    return definition


SCHEMA = "spec/versions/0/schema/openAPIV3Schema"
PATH = "spec.validation.openAPIV3Schema"


BAD_DEFINITIONS: list[tuple[Any, str]] = [
    (_changed("metadata/name", "x"), 'metadata.name: Invalid value: "x": must be spec.names.plural+"."+spec.group'),
    (_changed("spec/group", "plain"), 'spec.group: Invalid value: "plain": should be a domain with at least one dot'),
    (_changed("spec/scope", "Galaxy"), 'spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"'),
    (_changed("spec/versions/0/storage", False), "must have exactly one version marked as storage version"),
    (_changed("spec/versions/0/name", "V1"), 'spec.versions[0].name: Invalid value: "V1"'),
    (_changed("spec/versions/0/schema", None), "spec.versions[0].schema.openAPIV3Schema: Required value"),
    (_changed("spec/preserveUnknownFields", True), "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"),
    (_changed(f"{SCHEMA}/type", ""), f"{PATH}.type: Required value: must not be empty at the root"),
    (_changed(f"{SCHEMA}/type", "array"), f'{PATH}.type: Invalid value: "array": must be object at the root'),
    (_changed(f"{SCHEMA}/additionalProperties", True), f"{PATH}.additionalProperties: Forbidden: must not be used at the root"),
    (_changed(f"{SCHEMA}/properties/spec/properties/a", {}), f"{PATH}.properties[spec].properties[a].type: Required value: must not be empty for specified object fields"),
    (_changed(f"{SCHEMA}/properties/spec/properties/a", {"type": "array"}), f"{PATH}.properties[spec].properties[a].items: Required value: must be specified"),
    (_changed(f"{SCHEMA}/properties/spec/properties/a", {"type": "array", "items": {}}), "items.type: Required value: must not be empty for specified array items"),
    (_changed(f"{SCHEMA}/anyOf", [{"properties": {"b": {"minLength": 1}}}]), f"{PATH}.properties[b]: Required value: because it is defined in {PATH}.anyOf[0].properties[b]"),
    (_changed(f"{SCHEMA}/properties/spec/anyOf", [{"type": "object"}]), f"{PATH}.properties[spec].anyOf[0].type: Forbidden: must be empty to be structural"),
    (_changed(f"{SCHEMA}/properties/spec/properties/a/$ref", "#/x"), "$ref: Forbidden: $ref is not supported"),
    (_changed(f"{SCHEMA}/properties/spec/properties/a/pattern", "("), "must be a valid regular expression, but isn't"),
    (_changed(f"{SCHEMA}/properties/spec/properties/a/default", 7), "properties[a].default"),
    (_changed(f"{SCHEMA}/properties/spec/default", {"b": 1}), f"{PATH}.properties[spec].default: Invalid value: {{\"b\":1}}: must not have unknown fields"),
    (_changed(f"{SCHEMA}/properties/spec/properties/a", {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map"}), "x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"),
    (_changed(f"{SCHEMA}/properties/metadata", {"type": "object", "properties": {"labels": {"type": "object"}}}), "must not specify anything other than name and generateName, but metadata is implicitly specified"),
    (_changed("spec/versions/0/additionalPrinterColumns", [{"name": "x", "type": "time", "jsonPath": ".a"}]), "must be one of boolean,date,integer,number,string"),
    (_changed("spec/versions/0/selectableFields", [{"jsonPath": ".spec.b"}]), "is an invalid path: does not refer to a valid field"),
    (_changed("spec/versions/0/subresources", {"scale": {"specReplicasPath": ".status.x", "statusReplicasPath": ".status.x"}}), "should be a json path under .spec"),
]  # fmt: skip


async def test_definitions_with_mistakes(server: Client) -> None:
    for definition, problem in BAD_DEFINITIONS:
        answer = await server.post(DEFINITIONS, definition)
        assert answer.status == 422, answer.body
        assert problem in answer.body["message"]


async def test_a_schema_bomb_is_refused_quickly(server: Client) -> None:
    deep: Document = {"type": "string"}
    for _ in range(100):
        deep = {"type": "object", "properties": {"x": deep}}
    wide = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(70_000)}}
    for spec, problem in ((deep, "levels deep"), (wide, "more than 60000 parts")):
        answer = await server.post(DEFINITIONS, a_definition(a_version(spec=spec)))
        assert answer.status == 422
        assert problem in answer.body["message"]


async def test_a_schema_with_many_alternatives_and_a_long_list_is_bounded(server: Client) -> None:
    items = {"type": "string", "anyOf": [{"enum": [f"x{i}"]} for i in range(2000)]}
    spec = {"type": "object", "properties": {"list": {"type": "array", "items": items}}}
    await define(server, a_definition(a_version(spec=spec)))
    answer = await server.post(TABS, a_tab(spec={"list": ["x1999"] * 5000}))
    assert answer.status == 422
    assert "the object has too many parts for its schema" in answer.body["message"]


# --- subresources, columns, fields -----------------------------------------------------------------------------------


FULL = a_version(
    subresources={
        "status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"},
    },
    additionalPrinterColumns=[
        {"name": "Schedule", "type": "string", "jsonPath": ".spec.schedule", "description": "when"},
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
        {"name": "Port", "type": "string", "jsonPath": '.spec.ports[?(@.name=="web")].port'},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ],
    selectableFields=[{"jsonPath": ".spec.mode"}, {"jsonPath": ".spec.replicas"}],
)  # fmt: skip


async def test_status_is_a_part_of_its_own(server: Client) -> None:
    await define(server, a_definition(FULL))
    made = await server.post(TABS, a_tab(spec={"replicas": 2}, status={"ready": 5}))
    assert "status" not in made.body
    path = f"{TABS}/t"
    status = await server.patch(
        f"{path}/status", {"spec": {"replicas": 9}, "status": {"ready": 1}, "metadata": {"labels": {"a": "b"}}}
    )
    assert (status.status, status.body["spec"], status.body["status"]) == (200, {"replicas": 2}, {"ready": 1})
    assert "labels" not in status.body["metadata"]
    assert status.body["metadata"]["generation"] == 1
    main = await server.patch(path, {"spec": {"replicas": 3}, "status": {"ready": 7}})
    assert (main.body["status"], main.body["metadata"]["generation"]) == ({"ready": 1}, 2)
    assert (await server.patch(f"{path}/status", {"status": {"ready": "x"}})).status == 422
    assert (await server.get(f"{path}/other")).status == 404


async def test_scale_reads_and_writes_the_paths_of_the_definition(server: Client) -> None:
    await define(server, a_definition(FULL))
    await server.post(TABS, a_tab(spec={"replicas": 2}))
    await server.patch(f"{TABS}/t/status", {"status": {"replicas": 1, "selector": "a=b"}})
    scale = await server.get(f"{TABS}/t/scale")
    assert (scale.body["kind"], scale.body["spec"], scale.body["status"]) == (
        "Scale",
        {"replicas": 2},
        {"replicas": 1, "selector": "a=b"},
    )
    changed = await server.patch(f"{TABS}/t/scale", {"spec": {"replicas": 4}})
    assert (changed.status, changed.body["spec"]) == (200, {"replicas": 4})
    assert (await server.get(f"{TABS}/t")).body["spec"]["replicas"] == 4
    kind = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "t"}}
    applied = await server.patch(
        f"{TABS}/t/scale?fieldManager=one&force=true", {**kind, "spec": {"replicas": 5}}, "apply"
    )
    assert (applied.status, applied.body["spec"]) == (200, {"replicas": 5})
    assert (await server.patch(f"{TABS}/t/scale", {"spec": {"replicas": 2**31}})).status == 422


async def test_columns_and_selectable_fields(server: Client) -> None:
    await define(server, a_definition(FULL))
    await server.post(
        TABS, a_tab("a", spec={"schedule": "* * * * *", "mode": "once", "ports": [{"name": "web", "port": 80}]})
    )
    await server.post(TABS, a_tab("b", spec={"mode": "always", "replicas": 3}))
    table = await server.get(TABS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert [column["name"] for column in table.body["columnDefinitions"]] == [
        "Name",
        "Schedule",
        "Replicas",
        "Port",
        "Age",
    ]
    assert [row["cells"][:4] for row in table.body["rows"]] == [["a", "* * * * *", 1, "80"], ["b", None, 3, None]]
    chosen = await server.get(f"{TABS}?fieldSelector=spec.mode=always,spec.replicas=3")
    assert [item["metadata"]["name"] for item in chosen.body["items"]] == ["b"]
    refused = await server.get(f"{TABS}?fieldSelector=spec.image=x")
    assert (refused.status, refused.body["message"]) == (400, "field label not supported: spec.image")


async def test_apply_names_fields_that_metadata_does_not_have(server: Client) -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}
    spec = {"type": "object", "properties": {"template": embedded}}
    await define(
        server, a_definition(a_version(schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}))
    )
    template = {"apiVersion": "v1", "kind": "Sub", "metadata": {"unknownInside": "x"}}
    tab = a_tab(spec={"template": template})
    tab["metadata"]["unknown"] = "x"
    refused = await server.patch(f"{TABS}/t?fieldManager=one", tab, "apply")
    assert refused.status == 400
    assert ".metadata.unknown: field not declared in schema" in refused.body["message"]
    assert ".spec.template.metadata.unknownInside: field not declared in schema" in refused.body["message"]


async def test_a_key_that_is_applied_twice_is_named_with_its_line(server: Client) -> None:
    await define(server)
    text = f"apiVersion: {GROUP}/v1\nkind: CronTab\nmetadata:\n  name: t\nspec:\n  mode: once\n  mode: always\n"
    path = f"{TABS}/t?fieldManager=one&fieldValidation=Strict"
    refused = await server.send("PATCH", path, text.encode(), content_type="application/apply-patch+yaml")
    assert refused.status == 400
    assert refused.body["message"] == (
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
        '  line 7: key "mode" already set in map'
    )


async def test_apply_merges_lists_by_the_keys_of_the_schema(server: Client) -> None:
    await define(server)
    one = a_tab(spec={"ports": [{"name": "a", "port": 1}], "labels": {"x": "1"}, "raw": {"k": {"one": 1}}})
    two = a_tab(
        spec={"ports": [{"name": "b", "port": 2}], "labels": {"y": "2"}, "raw": {"k": {"two": 2}}, "replicas": 2}
    )
    assert (await server.patch(f"{TABS}/t?fieldManager=one", one, "apply")).status == 201
    both = await server.patch(f"{TABS}/t?fieldManager=two", two, "apply")
    assert both.status == 200, both.body
    assert both.body["spec"]["ports"] == [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
    assert both.body["spec"]["labels"] == {"x": "1", "y": "2"}
    assert both.body["spec"]["raw"] == {"k": {"one": 1, "two": 2}}
    conflict = await server.patch(f"{TABS}/t?fieldManager=one", a_tab(spec={"replicas": 3}), "apply")
    assert (conflict.status, conflict.body["details"]["causes"][0]["field"]) == (409, ".spec.replicas")
    left = await server.patch(f"{TABS}/t?fieldManager=one", a_tab(spec={}), "apply")
    assert left.body["spec"]["ports"] == [{"name": "b", "port": 2}]
    assert left.body["spec"]["labels"] == {"y": "2"}
    unknown = await server.patch(f"{TABS}/t?fieldManager=one", a_tab(spec={"wrong": 1}), "apply")
    assert unknown.status == 400
    assert ".spec.wrong: field not declared in schema" in unknown.body["message"]


async def test_the_schema_is_published(server: Client) -> None:
    await server.get("/openapi/v3")
    await define(server)
    index = (await server.get("/openapi/v3")).body["paths"]
    assert f"apis/{GROUP}/v1" in index
    document = (await server.get(f"/openapi/v3/apis/{GROUP}/v1")).body
    schema = document["components"]["schemas"]["com.example.stable.v1.CronTab"]
    assert schema["properties"]["spec"]["properties"]["replicas"]["minimum"] == 1
    assert schema["x-kubernetes-group-version-kind"] == [{"group": GROUP, "version": "v1", "kind": "CronTab"}]
    assert "com.example.stable.v1.CronTab" in (await server.get("/openapi/v2")).body["definitions"]


# --- several versions ------------------------------------------------------------------------------------------------


async def test_versions_show_the_same_object(server: Client) -> None:
    old = {"type": "object", "properties": {"replicas": {"type": "integer"}, "legacy": {"type": "string"}}}
    new = {
        "type": "object",
        "properties": {"replicas": {"type": "integer"}, "fresh": {"type": "string", "default": "f"}},
    }
    await define(server, a_definition(a_version("v1", new), a_version("v1beta1", old, storage=False, deprecated=True)))
    beta = TABS.replace("/v1/", "/v1beta1/")
    made = await server.post(beta, {**a_tab(spec={"replicas": 2, "legacy": "x"}), "apiVersion": f"{GROUP}/v1beta1"})
    assert made.status == 201, made.body
    assert made.warnings == [f"{GROUP}/v1beta1 CronTab is deprecated"]
    assert made.body["apiVersion"] == f"{GROUP}/v1beta1"
    assert (await server.get(f"{TABS}/t")).body["spec"] == {"replicas": 2, "fresh": "f"}
    listed = (await server.get(beta)).body
    assert (listed["apiVersion"], listed["items"][0]["spec"]) == (f"{GROUP}/v1beta1", {"replicas": 2})
    preferred = next(group for group in (await server.get("/apis")).body["groups"] if group["name"] == GROUP)
    assert [version["version"] for version in preferred["versions"]] == ["v1", "v1beta1"]


async def test_a_new_storage_version_keeps_the_objects(server: Client) -> None:
    made = await define(server, a_definition(a_version("v1")))
    await server.post(TABS, a_tab(spec={"replicas": 2}))
    events = await server.watch(f"{TABS}?watch=true")
    await events.next()
    made["spec"]["versions"] = [a_version("v1", storage=False), a_version("v2")]
    changed = await server.send("PUT", f"{DEFINITIONS}/crontabs.{GROUP}", made)
    assert changed.status == 200, changed.body
    assert changed.body["status"]["storedVersions"] == ["v1", "v2"]
    await server.core.fresh()
    two = await server.get(f"{TABS.replace('/v1/', '/v2/')}/t")
    assert (two.status, two.body["apiVersion"], two.body["spec"]) == (200, f"{GROUP}/v2", {"replicas": 2})
    assert (await server.get(f"{TABS}/t")).body["apiVersion"] == f"{GROUP}/v1"
    assert await events.next() is None, "watches start over"
    del made["spec"]["versions"][0]
    current = await server.get(f"{DEFINITIONS}/crontabs.{GROUP}")
    made["metadata"]["resourceVersion"] = current.body["metadata"]["resourceVersion"]
    refused = await server.send("PUT", f"{DEFINITIONS}/crontabs.{GROUP}", made)
    assert refused.status == 422
    assert "v1 was previously a storage version, and must remain in spec.versions" in refused.body["message"]


# --- names and the end -----------------------------------------------------------------------------------------------


async def test_a_name_that_is_taken_is_not_accepted_until_it_is_free(server: Client) -> None:
    await define(server, a_definition(shortNames=["ct"]))
    other = a_definition(plural="cartoons", kind="Cartoon", shortNames=["ct"])
    assert (await server.post(DEFINITIONS, other)).status == 201
    name = f"cartoons.{GROUP}"

    async def is_refused() -> bool:
        return await condition(server, "NamesAccepted", name) == ("False", "ShortNamesConflict")

    await eventually(is_refused, "the name to be refused")
    assert await condition(server, "Established", name) == ("False", "NotAccepted")
    assert (await server.get(f"/apis/{GROUP}/v1/cartoons")).status == 404
    await server.send("DELETE", f"{DEFINITIONS}/crontabs.{GROUP}")

    async def is_accepted() -> bool:
        return await condition(server, "Established", name) == ("True", "InitialNamesAccepted")

    await eventually(is_accepted, "the name to be accepted")


async def test_the_objects_go_with_their_definition(server: Client) -> None:
    await define(server)
    await server.post(TABS, a_tab("a"))
    held = await server.post(TABS, {**a_tab("held"), "metadata": {"name": "held", "finalizers": ["example.com/wait"]}})
    assert held.status == 201
    deleted = await server.send("DELETE", f"{DEFINITIONS}/crontabs.{GROUP}")
    assert deleted.status == 200
    assert deleted.body["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert await condition(server, "Terminating") == ("True", "InstanceDeletionPending")

    async def a_is_gone() -> bool:
        return (await server.get(f"{TABS}/a")).status == 404

    await eventually(a_is_gone, "the object to be deleted")
    refused = await server.post(TABS, a_tab("late"))
    assert (refused.status, refused.body["message"]) == (
        405,
        "create not allowed while custom resource definition is terminating",
    )
    await server.patch(f"{TABS}/held", {"metadata": {"finalizers": None}})

    async def definition_is_gone() -> bool:
        return (await server.get(f"{DEFINITIONS}/crontabs.{GROUP}")).status == 404

    await eventually(definition_is_gone, "the definition to go")
    assert (await server.get(TABS)).status == 404
    assert GROUP not in [group["name"] for group in (await server.get("/apis")).body["groups"]]


async def test_kinds_and_objects_survive_a_restart(tmp_path: Path) -> None:
    for attempt in range(2):
        store = SqliteStore(tmp_path / "store.db")
        running = await start_server(store, ServerOptions(tmp_path))
        client = Client(running, store)
        if attempt == 0:
            await define(client)
            assert (await client.post(TABS, a_tab(spec={"replicas": 3}))).status == 201
        else:
            found: Answer = await client.get(f"{TABS}/t")
            assert (found.status, found.body["spec"]) == (200, {"replicas": 3})
        await running.stop()
        await store.close()


async def test_a_cluster_wide_kind(server: Client) -> None:
    await define(server, a_definition(scope="Cluster"))
    path = f"/apis/{GROUP}/v1/crontabs"
    assert (await server.post(path, a_tab())).status == 201
    assert (await server.get(f"{path}/t")).body["metadata"].get("namespace") is None
