"""Pods: what is filled in before they are looked at."""

from tests.apiserver.admission.world import World, admitted_pod


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
