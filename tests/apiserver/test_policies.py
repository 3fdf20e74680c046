"""ValidatingAdmissionPolicy: what is looked at, what is said, and what happens when a policy has no answer."""

import builtins
import importlib.resources
from typing import Any

import pytest
import yaml

from dray.api.scheme import Resource, by_kind
from dray.apiserver.errors import ApiError
from dray.apiserver.request.request_info import Attributes, Decision, User
from dray.apiserver.watch.stored_object import Stored, to_value
from dray.apiserver.write.admission.chain import CREATE, DELETE, UPDATE, Admission, AdmissionPlugin
from dray.apiserver.write.admission.policies_and_webhooks import POLICY_PREFIX, PolicyChecks
from dray.apiserver.write.admission.validating_admission_policy import ValidatingAdmissionPolicy
from dray.apiserver.write.policies.compiled_policies import PolicyIndex

Document = dict[str, Any]
DRA = "resource.k8s.io"
GROUP = "admissionregistration.k8s.io"
ALICE = User("alice", ("dev",))


class Known:
    """Objects by plural, namespace and name."""

    def __init__(self, *documents: tuple[str, Document]) -> None:
        self._documents = documents

    async def get(self, group: str, plural: str, namespace: str, name: str) -> Document | None:
        for found_plural, document in self._documents:
            metadata = document["metadata"]
            if (found_plural, metadata.get("namespace", ""), metadata["name"]) == (plural, namespace, name):
                return document
        return None

    async def list(self, group: str, plural: str, namespace: str = "") -> list[Document]:
        return [
            document
            for found_plural, document in self._documents
            if found_plural == plural and document["metadata"].get("namespace", "") == namespace
        ]

    async def stored(self, group: str, plural: str, namespace: str) -> builtins.list[Stored]:
        values = [
            to_value({"kind": None, "apiVersion": None, **each}) for each in await self.list(group, plural, namespace)
        ]
        return [Stored(f"/{number}", namespace, value, 1, 1, 0) for number, value in enumerate(values)]

    def row_of_kind(self, group: str, kind: str) -> Resource | None:
        try:
            return by_kind(kind, group)
        except KeyError:
            return None

    async def look(self, group: str, plural: str, namespace: str, name: str) -> Document | None:
        return await self.get(group, plural, namespace, name)

    async def look_at_all(self, group: str, plural: str) -> builtins.list[Document]:
        return await self.list(group, plural)


NAMESPACE = ("namespaces", {"metadata": {"name": "ns", "labels": {"env": "prod"}}})


def rules(resources: list[str], operations: list[str] | None = None, groups: list[str] | None = None) -> Document:
    return {
        "resourceRules": [
            {
                "apiGroups": groups or [DRA],
                "apiVersions": ["v1"],
                "operations": operations or ["*"],
                "resources": resources,
            }
        ]
    }


def a_policy(name: str = "p", **spec: Any) -> Document:
    spec = {"matchConstraints": rules(["*"]), **spec}
    return {"kind": "ValidatingAdmissionPolicy", "apiVersion": f"{GROUP}/v1", "metadata": {"name": name}, "spec": spec}


def a_binding(name: str = "b", policy: str = "p", **spec: Any) -> Document:
    spec = {"policyName": policy, "validationActions": ["Deny"], **spec}
    kind = "ValidatingAdmissionPolicyBinding"
    return {"kind": kind, "apiVersion": f"{GROUP}/v1", "metadata": {"name": name}, "spec": spec}


def plugin_for(*documents: Document, objects: Known | None = None) -> ValidatingAdmissionPolicy:
    index = PolicyIndex()
    for document in documents:
        is_policy = document["kind"] == "ValidatingAdmissionPolicy"
        plural = "validatingadmissionpolicies" if is_policy else "validatingadmissionpolicybindings"
        index.apply(f"{POLICY_PREFIX}{plural}/{document['metadata']['name']}", to_value(document))

    def decide(attributes: Attributes) -> Decision:
        return Decision(attributes.user.name == "alice" and attributes.verb == "bend-rules", "because")

    return ValidatingAdmissionPolicy(index, objects or Known(NAMESPACE), decide)


def a_claim_write(count: int = 1, operation: str = CREATE, **more: Any) -> Admission:
    verb = {"CREATE": "create", "UPDATE": "update", "DELETE": "delete"}[operation]
    attributes = Attributes(more.pop("user", ALICE), verb, DRA, "v1", "resourceclaims", "", "ns", "c")
    claim = {"metadata": {"name": "c", "namespace": "ns", **more.pop("metadata", {})}, "spec": {"count": count}}
    document = None if operation == DELETE else claim
    old = claim if operation == DELETE else more.pop("old", None)
    return Admission(attributes, operation, "ResourceClaim", document, old)


async def refused(plugin: AdmissionPlugin, admission: Admission) -> ApiError:
    with pytest.raises(ApiError) as error:
        await plugin.validate(admission)
    return error.value


SMALL = {"expression": "object.spec.count <= 2"}


async def test_a_denial_names_policy_binding_and_expression() -> None:
    plugin = plugin_for(a_policy(validations=[SMALL]), a_binding())
    await plugin.validate(a_claim_write(2))
    error = await refused(plugin, a_claim_write(3))
    assert (error.code, error.reason) == (422, "Invalid")
    assert error.message == (
        "resourceclaims.resource.k8s.io \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied "
        "request: failed expression: object.spec.count <= 2"
    )


async def test_a_policy_without_binding_does_nothing() -> None:
    await plugin_for(a_policy(validations=[SMALL])).validate(a_claim_write(3))


async def test_messages_and_reasons() -> None:
    fixed = plugin_for(a_policy(validations=[{**SMALL, "message": "too big", "reason": "Forbidden"}]), a_binding())
    error = await refused(fixed, a_claim_write(3))
    assert (error.code, error.reason) == (403, "Forbidden")
    assert error.message.endswith("denied request: too big")
    made = {**SMALL, "message": "too big", "messageExpression": "'count is ' + string(object.spec.count)"}
    error = await refused(plugin_for(a_policy(validations=[made]), a_binding()), a_claim_write(3))
    assert error.message.endswith("denied request: count is 3")
    for useless in ("object.missing.text", "''", "'two\\nlines'", "7"):
        fallback = {**SMALL, "message": "too big", "messageExpression": useless}
        error = await refused(plugin_for(a_policy(validations=[fallback]), a_binding()), a_claim_write(3))
        assert error.message.endswith("denied request: too big")


@pytest.mark.parametrize(
    ("resources", "operations", "sub", "operation", "looked_at"),
    [
        (["resourceclaims"], ["CREATE"], "", CREATE, True),
        (["resourceclaims"], ["UPDATE"], "", CREATE, False),
        (["resourceclaims"], ["*"], "status", UPDATE, False),
        (["resourceclaims/status"], ["*"], "status", UPDATE, True),
        (["resourceclaims/*"], ["*"], "status", UPDATE, True),
        (["*/*"], ["*"], "status", UPDATE, True),
        (["*"], ["*"], "status", UPDATE, False),
        (["resourceslices"], ["*"], "", CREATE, False),
    ],
)
async def test_rules(resources: list[str], operations: list[str], sub: str, operation: str, looked_at: bool) -> None:
    policy = a_policy(matchConstraints=rules(resources, operations), validations=[{"expression": "false"}])
    attributes = Attributes(ALICE, "update", DRA, "v1", "resourceclaims", sub, "ns", "c")
    admission = Admission(attributes, operation, "ResourceClaim", {"metadata": {"name": "c"}}, None)
    plugin = plugin_for(policy, a_binding())
    if looked_at:
        await refused(plugin, admission)
    else:
        await plugin.validate(admission)


async def test_another_version_of_the_kind_does_not_slip_through() -> None:
    plugin = plugin_for(a_policy(validations=[{"expression": "false"}]), a_binding())
    attributes = Attributes(ALICE, "create", DRA, "v1beta1", "resourceclaims", "", "ns", "c")
    await refused(plugin, Admission(attributes, CREATE, "ResourceClaim", {"metadata": {"name": "c"}}))


@pytest.mark.parametrize(
    ("narrower", "looked_at"),
    [
        ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"env": "test"}}}, False),
        ({"objectSelector": {"matchLabels": {"app": "x"}}}, True),
        ({"objectSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, False),
        (rules(["resourceslices"]), False),
        ({"excludeResourceRules": rules(["resourceclaims"])["resourceRules"]}, False),
    ],
)
async def test_bindings_narrow(narrower: Document, looked_at: bool) -> None:
    plugin = plugin_for(a_policy(validations=[{"expression": "false"}]), a_binding(matchResources=narrower))
    admission = a_claim_write(metadata={"labels": {"app": "x"}})
    if looked_at:
        await refused(plugin, admission)
    else:
        await plugin.validate(admission)


async def test_warn_and_audit_let_pass() -> None:
    plugin = plugin_for(a_policy(validations=[SMALL]), a_binding(validationActions=["Warn", "Audit"]))
    admission = a_claim_write(3)
    await plugin.validate(admission)
    assert admission.warnings == [
        "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression: object.spec.count <= 2"
    ]


async def test_what_is_to_be_remembered_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    annotations = [
        {"key": "count", "valueExpression": "string(object.spec.count) + '\\nforged'"},
        {"key": "nothing", "valueExpression": "null"},
    ]
    policy = a_policy(validations=[{"expression": "false", "message": "never"}], auditAnnotations=annotations)
    plugin = plugin_for(policy, a_binding(validationActions=["Audit"]))
    with caplog.at_level("INFO", "dray.audit"):
        await plugin.validate(a_claim_write(3))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith("alice create resourceclaims/ns/c: ")
    assert lines[0].endswith('"p/count=3\\nforged"')
    assert lines[1].endswith("\"ValidatingAdmissionPolicy 'p' with binding 'b': never\"")


async def test_an_annotation_without_a_value_is_no_answer() -> None:
    annotations = [{"key": "k", "valueExpression": "object.missing"}]
    validations = [{"expression": "true"}]
    closed = plugin_for(a_policy(validations=validations, auditAnnotations=annotations), a_binding())
    assert "no such key: missing" in (await refused(closed, a_claim_write())).message
    policy = a_policy(validations=validations, auditAnnotations=annotations, failurePolicy="Ignore")
    await plugin_for(policy, a_binding()).validate(a_claim_write())


async def test_match_conditions() -> None:
    conditions = [{"name": "others", "expression": "request.userInfo.username != 'alice'"}]
    plugin = plugin_for(a_policy(validations=[SMALL], matchConditions=conditions), a_binding())
    await plugin.validate(a_claim_write(3))
    await refused(plugin, a_claim_write(3, user=User("bob")))
    broken = [*conditions, {"name": "broken", "expression": "object.missing == 1"}]
    plugin = plugin_for(a_policy(validations=[SMALL], matchConditions=broken), a_binding())
    await plugin.validate(a_claim_write(3))
    error = await refused(plugin, a_claim_write(1, user=User("bob")))
    assert "no such key: missing" in error.message
    lenient = a_policy(validations=[SMALL], matchConditions=broken, failurePolicy="Ignore")
    await plugin_for(lenient, a_binding()).validate(a_claim_write(3, user=User("bob")))


async def test_a_policy_without_an_answer_fails_closed_unless_told_otherwise() -> None:
    broken = [{"expression": "object.spec.missing > 1"}]
    error = await refused(plugin_for(a_policy(validations=broken), a_binding()), a_claim_write())
    assert "expression 'object.spec.missing > 1' resulted in error: no such key: missing" in error.message
    await plugin_for(a_policy(validations=broken, failurePolicy="Ignore"), a_binding()).validate(a_claim_write())
    uncompiled = [{"expression": "object.spec.count >"}]
    error = await refused(plugin_for(a_policy(validations=uncompiled), a_binding()), a_claim_write())
    assert "compilation error" in error.message


async def test_variables_build_on_each_other_and_break_only_who_uses_them() -> None:
    variables = [
        {"name": "count", "expression": "object.spec.count"},
        {"name": "double", "expression": "variables.count * 2"},
        {"name": "broken", "expression": "object.nothing"},
    ]
    fine = [{"expression": "variables.double <= 4"}]
    plugin = plugin_for(a_policy(variables=variables, validations=fine), a_binding())
    await plugin.validate(a_claim_write(2))
    await refused(plugin, a_claim_write(3))
    uses = [{"expression": "variables.broken == 1"}]
    error = await refused(plugin_for(a_policy(variables=variables, validations=uses), a_binding()), a_claim_write())
    assert "no such key: nothing" in error.message


async def test_params() -> None:
    limit = (
        "configmaps",
        {"metadata": {"name": "limit", "namespace": "ns", "labels": {"a": "b"}}, "data": {"max": "2"}},
    )
    policy = a_policy(
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        validations=[{"expression": "object.spec.count <= int(params.data.max)"}],
    )
    objects = Known(NAMESPACE, limit)
    for reference in (
        {"name": "limit"},
        {"selector": {"matchLabels": {"a": "b"}}},
        {"name": "limit", "namespace": "ns"},
    ):
        plugin = plugin_for(
            policy, a_binding(paramRef={**reference, "parameterNotFoundAction": "Deny"}), objects=objects
        )
        await plugin.validate(a_claim_write(2))
        await refused(plugin, a_claim_write(3))
    missing = {"name": "other", "parameterNotFoundAction": "Deny"}
    error = await refused(plugin_for(policy, a_binding(paramRef=missing), objects=objects), a_claim_write(1))
    assert "no params found" in error.message
    allowed = {"name": "other", "parameterNotFoundAction": "Allow"}
    await plugin_for(policy, a_binding(paramRef=allowed), objects=objects).validate(a_claim_write(9))


async def test_old_objects_deletions_and_namespaces() -> None:
    shrink = [{"expression": "request.operation != 'UPDATE' || object.spec.count >= oldObject.spec.count"}]
    plugin = plugin_for(a_policy(validations=shrink), a_binding())
    old = {"metadata": {"name": "c"}, "spec": {"count": 5}}
    await refused(plugin, a_claim_write(3, UPDATE, old=old))
    await plugin.validate(a_claim_write(6, UPDATE, old=old))
    kept = [{"expression": "object != null || oldObject.spec.count < 3"}]
    plugin = plugin_for(a_policy(validations=kept), a_binding())
    await refused(plugin, a_claim_write(3, DELETE))
    await plugin.validate(a_claim_write(2, DELETE))
    not_in_prod = [{"expression": "namespaceObject.metadata.labels.env != 'prod'"}]
    await refused(plugin_for(a_policy(validations=not_in_prod), a_binding()), a_claim_write())


async def test_the_authorizer_can_be_asked() -> None:
    asks = [
        {
            "expression": "authorizer.group('resource.k8s.io').resource('resourceclaims').namespace('ns')"
            ".check('bend-rules').allowed()"
        },
        {"expression": "authorizer.requestResource.check('bend-rules').reason() == 'because'"},
        {"expression": "!authorizer.serviceAccount('ns', 'x').path('/y').check('get').allowed()"},
    ]
    plugin = plugin_for(a_policy(validations=asks), a_binding())
    await plugin.validate(a_claim_write())
    await refused(plugin, a_claim_write(user=User("bob")))


async def test_an_expression_that_costs_too_much_is_no_answer() -> None:
    many = list(range(2000))
    bomb = [{"expression": "object.items.all(x, object.items.all(y, object.items.all(z, x + y + z >= 0)))"}]
    plugin = plugin_for(a_policy(validations=bomb), a_binding())
    admission = a_claim_write()
    assert admission.document is not None
    admission.document["items"] = many
    error = await refused(plugin, admission)
    assert "cost limit exceeded" in error.message


def policy_write(document: Document) -> Admission:
    attributes = Attributes(ALICE, "create", GROUP, "v1", "validatingadmissionpolicies", "", "", "p")
    return Admission(attributes, CREATE, "ValidatingAdmissionPolicy", document)


async def test_a_policy_that_does_not_compile_is_refused_when_written() -> None:
    plugin = PolicyChecks()
    bad = a_policy(
        validations=[{"expression": "object.spec.count >"}, {"expression": "1 + 1"}, {"expression": " "}],
        variables=[{"name": "v", "expression": "unknown.x"}],
        matchConditions=[{"name": "c", "expression": "variables.v"}],
    )
    error = await refused(plugin, policy_write(bad))
    assert error.code == 422
    for field in (
        "spec.validations[0].expression",
        "spec.validations[1].expression",
        "spec.validations[2].expression",
        "spec.variables[0].expression",
        "spec.matchConditions[0].expression",
    ):
        assert field in error.message
    await plugin.validate(policy_write(a_policy(validations=[SMALL])))
    error = await refused(plugin, policy_write(a_policy()))
    assert "spec.validations: Required value" in error.message


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (a_policy(validations=[SMALL], matchConstraints=None), "spec.matchConstraints"),
        (a_policy(validations=[SMALL], matchConstraints={}), "spec.matchConstraints.resourceRules"),
        (a_policy(validations=[SMALL], failurePolicy="Maybe"), "spec.failurePolicy"),
        (
            a_policy(validations=[SMALL], matchConstraints=rules(["*"], ["READ"])),
            "spec.matchConstraints.resourceRules[0].operations[0]",
        ),
        (a_policy(validations=[{**SMALL, "reason": "Mood"}]), "spec.validations[0].reason"),
        (a_policy(validations=[SMALL], paramKind={"kind": "ConfigMap"}), "spec.paramKind.apiVersion"),
        (a_policy(validations=[SMALL], variables=[{"name": "1x", "expression": "1"}]), "spec.variables[0].name"),
        (
            a_policy(validations=[SMALL], matchConditions=[{"name": "a b", "expression": "true"}]),
            "spec.matchConditions[0].name",
        ),
        (a_policy(auditAnnotations=[{"valueExpression": "'x'"}]), "spec.auditAnnotations[0].key"),
        (
            a_policy(auditAnnotations=[{"key": "k", "valueExpression": "'x"}]),
            "spec.auditAnnotations[0].valueExpression",
        ),
        (
            a_policy(auditAnnotations=[{"key": "k", "valueExpression": "'x'"}] * 2),
            "spec.auditAnnotations[1].key",
        ),
        (a_binding(policy=""), "spec.policyName"),
        (a_binding(validationActions=[]), "spec.validationActions"),
        (a_binding(validationActions=["Shout"]), "spec.validationActions[0]"),
        (a_binding(validationActions=["Deny", "Warn"]), "spec.validationActions"),
        (a_binding(paramRef={"parameterNotFoundAction": "Deny"}), "spec.paramRef"),
        (a_binding(paramRef={"name": "x"}), "spec.paramRef.parameterNotFoundAction"),
    ],
)
async def test_policies_and_bindings_that_make_no_sense(document: Document, field: str) -> None:
    is_policy = document["kind"] == "ValidatingAdmissionPolicy"
    plural = "validatingadmissionpolicies" if is_policy else "validatingadmissionpolicybindings"
    attributes = Attributes(ALICE, "create", GROUP, "v1", plural, "", "", "p")
    error = await refused(PolicyChecks(), Admission(attributes, CREATE, document["kind"], document))
    assert (error.code, error.details is not None) == (422, True)
    assert error.details is not None
    assert [cause["field"] for cause in error.details["causes"]] == [field]


async def test_policies_do_not_judge_policies() -> None:
    everything = a_policy(matchConstraints=rules(["*"], groups=["*"]), validations=[{"expression": "false"}])
    await plugin_for(everything, a_binding()).validate(policy_write(a_policy(validations=[SMALL])))


# --- the shipped manifest --------------------------------------------------------------------------------------------


def shipped() -> list[Document]:
    source = importlib.resources.files("dray.apiserver.security").joinpath("manifests/driver-slices-policy.yaml")
    return list(yaml.safe_load_all(source.read_text()))


def driver_on(node: str, namespace: str = "dra-drivers") -> User:
    extra = {"authentication.kubernetes.io/node-name": (node,)} if node else {}
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return User(f"system:serviceaccount:{namespace}:gpu", groups, "u", extra)


def slice_write(user: User, operation: str, version: str = "v1", **selection: Any) -> Admission:
    attributes = Attributes(user, operation.lower(), DRA, version, "resourceslices", "", "", "s")
    found = {"metadata": {"name": "s"}, "spec": {"driver": "d", **selection}}
    if operation == DELETE:
        return Admission(attributes, operation, "ResourceSlice", None, found)
    return Admission(attributes, operation, "ResourceSlice", found, found if operation == UPDATE else None)


@pytest.mark.parametrize("operation", [CREATE, UPDATE, DELETE])
async def test_a_driver_keeps_to_the_slices_of_its_node(operation: str) -> None:
    plugin = plugin_for(*shipped())
    await plugin.validate(slice_write(driver_on("n1"), operation, nodeName="n1"))
    error = await refused(plugin, slice_write(driver_on("n1"), operation, nodeName="n2"))
    assert error.code == 403
    assert error.message.endswith("a driver on node n1 may not write slices of node n2")
    error = await refused(plugin, slice_write(driver_on("n1"), operation, allNodes=True))
    assert error.message.endswith("may not write slices of several nodes")
    await refused(plugin, slice_write(driver_on("n1"), operation, "v1beta1", nodeName="n2"))
    error = await refused(plugin, slice_write(driver_on(""), operation, nodeName="n1"))
    assert "does not say on which node" in error.message
    await plugin.validate(slice_write(driver_on("n1", "elsewhere"), operation, nodeName="n2"))
    await plugin.validate(slice_write(User("admin", ("system:masters",)), operation, nodeName="n2"))
