"""Pods: what is filled in before they are looked at."""

from typing import Any

import pytest
from tests.apiserver.admission.world import World, admitted_pod, meta


async def test_a_plain_pod_is_completed(world: World) -> None:
    pod = await world.admit("pods", admitted_pod())
    assert pod is not None
    spec = pod["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [entry["key"] for entry in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    volume = spec["volumes"][0]
    assert volume["name"].startswith("kube-api-access-")
    assert len(volume["name"]) == len("kube-api-access-") + 5
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": volume["name"], "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    ]


async def test_no_token_where_none_is_wanted(world: World) -> None:
    pod = await world.admit("pods", admitted_pod(automountServiceAccountToken=False))
    assert pod is not None
    assert "volumes" not in pod["spec"]
    await world.put("ServiceAccount", "shy", "ns", automountServiceAccountToken=False)
    pod = await world.admit("pods", admitted_pod(serviceAccountName="shy"))
    assert pod is not None
    assert "volumes" not in pod["spec"]
    pod = await world.admit("pods", admitted_pod(serviceAccountName="shy", automountServiceAccountToken=True))
    assert pod is not None
    assert len(pod["spec"]["volumes"]) == 1


async def test_a_missing_service_account(world: World) -> None:
    error = await world.refused("pods", admitted_pod("early", serviceAccountName="robot"))
    assert (error.code, error.message) == (
        403,
        'pods "early" is forbidden: error looking up service account ns/robot: serviceaccount "robot" not found',
    )


async def test_tolerations_of_the_pod_come_first(world: World) -> None:
    own = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]
    pod = await world.admit("pods", admitted_pod(tolerations=own))
    assert pod is not None
    assert [entry.get("tolerationSeconds") for entry in pod["spec"]["tolerations"]] == [5, 300]
    everything = [{"operator": "Exists"}]
    pod = await world.admit("pods", admitted_pod(tolerations=everything))
    assert pod is not None
    assert pod["spec"]["tolerations"] == everything


async def test_priorities_come_from_classes(world: World) -> None:
    await world.put("ServiceAccount", "default", "kube-system")
    pod = await world.admit("pods", admitted_pod(priorityClassName="system-node-critical"), namespace="kube-system")
    assert pod is not None
    assert pod["spec"]["priority"] == 2000001000
    error = await world.refused("pods", admitted_pod(priorityClassName="none"))
    assert error.message == 'pods "p" is forbidden: no PriorityClass with name none was found'
    error = await world.refused("pods", admitted_pod(priority=1000))
    assert "the integer value of priority (1000) must not be provided in pod spec" in error.message
    error = await world.refused("pods", admitted_pod(preemptionPolicy="Never"))
    assert "the string value of PreemptionPolicy (Never)" in error.message
    await world.put("PriorityClass", "usual", value=7, globalDefault=True, preemptionPolicy="Never")
    pod = await world.admit("pods", admitted_pod())
    assert pod is not None
    assert (pod["spec"]["priority"], pod["spec"]["priorityClassName"], pod["spec"]["preemptionPolicy"]) == (
        *(7, "usual", "Never"),
    )
    second = {"metadata": {"name": "second"}, "value": 9, "globalDefault": True}
    error = await world.refused("scheduling.k8s.io:priorityclasses", second)
    assert "PriorityClass usual is already marked as default" in error.message


async def test_pull_secrets_come_from_the_account_unless_the_pod_has_its_own(world: World) -> None:
    await world.put("ServiceAccount", "default", "ns", imagePullSecrets=[{"name": "shared"}])
    await world.put("ServiceAccount", "poor", "ns")
    for spec, expected in (
        ({}, [{"name": "shared"}]),
        ({"imagePullSecrets": [{"name": "own"}]}, [{"name": "own"}]),
        ({"serviceAccountName": "poor"}, None),
    ):
        pod = await world.admit("pods", admitted_pod(**spec))
        assert pod is not None
        assert pod["spec"].get("imagePullSecrets") == expected


async def test_a_token_volume_that_is_there_is_used(world: World) -> None:
    volume = {"name": "kube-api-access-own", "emptyDir": {}}
    pod = await world.admit("pods", admitted_pod(volumes=[volume]))
    assert pod is not None
    assert pod["spec"]["volumes"] == [volume]
    assert [mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]] == ["kube-api-access-own"]


async def test_a_pod_that_is_replaced_keeps_its_priority(world: World) -> None:
    old = admitted_pod(priority=7, preemptionPolicy="Never")
    pod = await world.admit("pods", admitted_pod(), old)
    assert pod is not None
    assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (7, "Never")
    pod = await world.admit("pods", admitted_pod(priority=8), old)
    assert pod is not None
    assert pod["spec"]["priority"] == 8, "for validation to refuse"


async def test_pod_groups_have_the_priority_of_their_class(world: World) -> None:
    groups = "scheduling.k8s.io:podgroups"
    await world.put("PriorityClass", "high", value=7)
    made = await world.admit(groups, {"metadata": meta("g"), "spec": {"priorityClassName": "high"}})
    assert made is not None
    assert made["spec"] == {"priorityClassName": "high", "priority": 7}
    made = await world.admit(groups, {"metadata": meta("g")})
    assert made is not None
    assert made["spec"] == {"priority": 0}
    error = await world.refused(groups, {"metadata": meta("g"), "spec": {"priorityClassName": "high", "priority": 1}})
    assert error.message.endswith(
        "priority set in the pod group (1) must match the priority computed (7) based on the priority class set in the spec"
    )
    error = await world.refused(groups, {"metadata": meta("g"), "spec": {"priorityClassName": "none"}})
    assert error.message == 'podgroups.scheduling.k8s.io "g" is forbidden: no PriorityClass with name none was found'


def with_env(**variable: Any) -> Any:
    pod = admitted_pod()
    pod["spec"]["containers"][0]["name"] = "c"
    pod["spec"]["containers"][0].update(variable)
    return pod


SECRET = {"secretKeyRef": {"name": "other", "key": "k"}}
NOT_REFERENCED = "is not allowed because service account default does not reference that"


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (
            admitted_pod(volumes=[{"name": "v", "secret": {"secretName": "other"}}]),
            f'volume with secret.secretName="other" {NOT_REFERENCED} secret',
        ),
        (
            with_env(env=[{"name": "E", "valueFrom": SECRET}]),
            f'container c with envVar E referencing secret.secretName="other" {NOT_REFERENCED} secret',
        ),
        (
            with_env(envFrom=[{"secretRef": {"name": "other"}}]),
            f'container c with envFrom referencing secret.secretName="other" {NOT_REFERENCED} secret',
        ),
        (
            admitted_pod(imagePullSecrets=[{"name": "other"}]),
            f'imagePullSecrets[0].name="other" {NOT_REFERENCED} imagePullSecret',
        ),
    ],
)
async def test_an_account_may_say_which_secrets_its_pods_use(world: World, pod: Any, why: str) -> None:
    assert await world.admit("pods", pod) is not None
    enforced = {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}
    lists = {"secrets": [{"name": "mine"}], "imagePullSecrets": [{"name": "mine"}]}
    await world.put("ServiceAccount", "default", "ns", metadata=enforced, **lists)
    error = await world.refused("pods", pod)
    assert (error.code, error.message) == (403, f'pods "p" is forbidden: {why}')
    assert (
        await world.admit("pods", admitted_pod(volumes=[{"name": "v", "secret": {"secretName": "mine"}}])) is not None
    )


async def test_ephemeral_containers_use_no_other_secrets_either(world: World) -> None:
    enforced = {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}
    await world.put("ServiceAccount", "default", "ns", metadata=enforced)
    old = admitted_pod(serviceAccountName="default")
    extra = {"name": "debug", "env": [{"name": "E", "valueFrom": SECRET}]}
    new = admitted_pod(serviceAccountName="default", ephemeralContainers=[extra])
    error = await world.refused("pods/ephemeralcontainers", new, old)
    assert error.message.startswith('pods "p" is forbidden: ephemeral container debug with envVar E referencing')
    error = await world.refused("pods/ephemeralcontainers", admitted_pod(ephemeralContainers=[extra]), old)
    assert error.message == 'pods "p" is forbidden: no service account specified for pod ns/p'


async def test_a_mirror_pod_references_no_secrets(world: World) -> None:
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    for spec in ({"imagePullSecrets": [{"name": "s"}]}, {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}):
        error = await world.refused("pods", admitted_pod(metadata=mirror, nodeName="n1", **spec))
        assert error.message == 'pods "p" is forbidden: a mirror pod may not reference secrets'
    pod = with_env(envFrom=[{"secretRef": {"name": "s"}}])
    pod["metadata"] |= mirror
    assert (await world.refused("pods", pod)).code == 403
    assert await world.admit("pods", admitted_pod(metadata=mirror, nodeName="n1")) is not None
