"""A new user finds each planted problem with one command: the first two lines name what is wrong and what to do about it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.cli.explain import explain
from tests.explain.manifests import DRIVER, Cluster, gpu, gpu_claim, gpu_pod, held
from tests.explain.test_doctor import selected_nowhere
from tests.explain.test_recorded_causes import (
    exceeded_quota,
    from_template,
    prepare_fails,
    removed_admin_label,
    stuck_binding_condition,
    unregistered_driver,
)


def a_class_that_is_misspelt(cluster: Cluster) -> None:
    cluster.request["deviceClassName"] = "gpuu"


def an_attribute_that_is_misspelt(cluster: Cluster) -> None:
    cluster.select(f'device.attributes["{DRIVER}"].modell == "a100"')


def a_capacity_that_is_misspelt(cluster: Cluster) -> None:
    cluster.request["capacity"] = {"requests": {"memroy": "1Gi"}}


def a_capacity_without_its_domain(cluster: Cluster) -> None:
    cluster.slice["spec"]["devices"] = [gpu("gpu-0", capacity={f"{DRIVER}/memory": "40Gi"})]
    cluster.request["capacity"] = {"requests": {"memory": "1Gi"}}


def asks_for(cluster: Cluster, resource: str, amount: str) -> None:
    cluster.pod["spec"].pop("resourceClaims", None)
    container = cluster.pod["spec"]["containers"][0]
    container["resources"] = {"limits": {resource: amount}, "requests": {resource: amount}}


def too_many_of_an_extended_resource(cluster: Cluster) -> None:
    cluster.device_class["spec"]["extendedResourceName"] = "example.com/card"
    asks_for(cluster, "example.com/card", "3")


def too_many_devices_of_a_class(cluster: Cluster) -> None:
    asks_for(cluster, "deviceclass.resource.kubernetes.io/gpu", "3")


def an_extended_resource_that_is_misspelt(cluster: Cluster) -> None:
    cluster.device_class["spec"]["extendedResourceName"] = "example.com/card"
    asks_for(cluster, "example.com/cards", "1")


def a_class_misspelt_as_a_resource(cluster: Cluster) -> None:
    asks_for(cluster, "deviceclass.resource.kubernetes.io/gpuu", "1")


def a_tainted_node(cluster: Cluster) -> None:
    cluster.node["spec"]["taints"] = [{"key": "dedicated", "value": "infra", "effect": "NoSchedule"}]


def a_node_that_is_not_ready(cluster: Cluster) -> None:
    cluster.node["spec"]["taints"] = [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]


def a_claim_with_as_many_users_as_it_can_have(cluster: Cluster) -> None:
    held(cluster.claim, "gpu-0")
    users = [{"resource": "pods", "name": f"user-{n}", "uid": f"uid-user-{n}"} for n in range(256)]
    cluster.claim["status"]["reservedFor"] = users


def a_claim_that_is_being_deleted_under_its_user(cluster: Cluster) -> None:
    held(cluster.claim, "gpu-0")
    cluster.claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.claim["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]


def a_tainted_device(cluster: Cluster) -> None:
    cluster.slice["spec"]["devices"] = [gpu("gpu-0", taints=[{"key": "maintenance", "effect": "NoSchedule"}])]


def a_pool_of_two_drivers(cluster: Cluster) -> None:
    twin = copy.deepcopy(cluster.slice)
    twin["metadata"]["name"] = "twin"
    cluster.add(twin)


def half_a_pool(cluster: Cluster) -> None:
    cluster.slice["spec"]["pool"]["resourceSliceCount"] = 2


def too_little_cpu(cluster: Cluster) -> None:
    cluster.pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "6"
    cluster.add(gpu_pod("big", "", cpu="4", nodeName="node-1"))


def every_device_in_use(cluster: Cluster) -> None:
    cluster.slice["spec"]["devices"] = [gpu("gpu-0")]
    cluster.add(held(gpu_claim("other"), "gpu-0"), gpu_pod("other", "other", nodeName="node-1"))


def a_constraint_that_cannot_be_met(cluster: Cluster) -> None:
    cluster.request["count"] = 2
    cluster.claim["spec"]["devices"]["constraints"] = [{"matchAttribute": f"{DRIVER}/numa"}]


def no_such_template(cluster: Cluster) -> None:
    from_template(cluster)
    cluster.pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "onee"


def put_template(cluster: Cluster, name: str, namespace: str = "default") -> None:
    metadata = {"name": name, "namespace": namespace}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    cluster.add({**kind, "metadata": metadata, "spec": {"spec": cluster.claim["spec"]}})


def a_template_named_as_a_claim(cluster: Cluster) -> None:
    put_template(cluster, "train-template")
    cluster.pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "train-template"}]


def a_claim_named_as_a_template(cluster: Cluster) -> None:
    cluster.pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "train-gpu"}]


def a_claim_that_is_misspelt(cluster: Cluster) -> None:
    cluster.pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "train-gpus"}]


def a_claim_of_another_namespace(cluster: Cluster) -> None:
    cluster.claim["metadata"]["namespace"] = "ml"


def a_template_of_another_namespace(cluster: Cluster) -> None:
    put_template(cluster, "one", "ml")
    cluster.pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]


def a_cordoned_node(cluster: Cluster) -> None:
    cluster.node["spec"]["unschedulable"] = True


PROBLEMS: list[tuple[Callable[[Cluster], None], str, str]] = [
    (
        unregistered_driver,
        f"is on node node-1 and has not started: driver {DRIVER} is not registered with the node agent",
        f"start driver {DRIVER} on node node-1",
    ),
    (prepare_fails, "preparing its devices on node node-1 fails", "see the log of the driver on node node-1"),
    (a_class_that_is_misspelt, "device class gpuu does not exist; did you mean gpu?", "correct its name"),
    (
        an_attribute_that_is_misspelt,
        "modell is not published; did you mean “model”?",
        f'device.attributes["{DRIVER}"].model == "a100"',
    ),
    (
        a_capacity_that_is_misspelt,
        "none of them has a capacity memroy; did you mean memory?",
        "ask for capacity memory instead of memroy in request gpu",
    ),
    (
        a_capacity_without_its_domain,
        f"none of them has a capacity memory; did you mean {DRIVER}/memory?",
        f"ask for capacity {DRIVER}/memory instead of memory in request gpu",
    ),
    (
        too_many_of_an_extended_resource,
        "example.com/card of container main wants 3: 2 exist",
        "let the pod ask for at most 2 example.com/card instead of 3",
    ),
    (
        too_many_devices_of_a_class,
        "deviceclass.resource.kubernetes.io/gpu of container main wants 3: 2 exist",
        "let the pod ask for at most 2 deviceclass.resource.kubernetes.io/gpu instead of 3",
    ),
    (
        an_extended_resource_that_is_misspelt,
        "no device class has the extendedResourceName example.com/cards; did you mean example.com/card?",
        "a device plugin, or devices of a class with that extendedResourceName",
    ),
    (
        a_class_misspelt_as_a_resource,
        "device class gpuu does not exist; did you mean gpu?",
        "devices of device class gpuu (then",
    ),
    (exceeded_quota, "quota gpus allows 4", "kubectl edit resourcequota/gpus -n default"),
    (
        removed_admin_label,
        "namespace default has no label resource.kubernetes.io/admin-access=true",
        "kubectl label namespace default resource.kubernetes.io/admin-access=true",
    ),
    (
        stuck_binding_condition,
        f"is not ready: condition FabricReady is not reported by driver {DRIVER}",
        f"see the log of driver {DRIVER}",
    ),
    (
        a_tainted_node,
        "taint dedicated=infra:NoSchedule is not tolerated",
        "add {key: dedicated, value: infra, effect: NoSchedule} to the pod's tolerations",
    ),
    (
        a_node_that_is_not_ready,
        "the node is not healthy",
        "find out what is wrong with node node-1: kubectl describe node",
    ),
    (
        a_claim_with_as_many_users_as_it_can_have,
        "claim default/train-gpu is reserved for 256 users, and a claim can have no more than 256",
        "give the pod a claim of its own",
    ),
    (
        a_claim_that_is_being_deleted_under_its_user,
        'resourceclaim "train-gpu" is being deleted; still used by pod default/other',
        "wait until it is gone, then create it again",
    ),
    (a_tainted_device, "none are tolerated", "tolerate maintenance:NoSchedule"),
    (half_a_pool, f"1 of 2 slices are there, and driver {DRIVER} has to publish the rest", "wait for the driver"),
    (
        a_pool_of_two_drivers,
        "2 slices are there, and they say that there are 1: two drivers publish it, or one was left behind",
        "see that one driver alone publishes each pool",
    ),
    (too_little_cpu, "cpu", "let the pod ask for at most 4 cpu instead of 6"),
    (every_device_in_use, "none are free", "release claim default/other"),
    (
        a_constraint_that_cannot_be_met,
        f"with the same {DRIVER}/numa: 2 could serve, at most 1 share",
        "ask for 1 instead of 2 in request gpu",
    ),
    (no_such_template, '"onee" of entry gpu does not exist; did you mean one?', "create the template"),
    (
        a_template_named_as_a_claim,
        'could not find ResourceClaim "default/train-template"; train-template is a claim template',
        "create it again with resourceClaimTemplateName: train-template instead of resourceClaimName: train-template",
    ),
    (
        a_claim_named_as_a_template,
        '"train-gpu" of entry gpu does not exist; train-gpu is a claim',
        "create it again with resourceClaimName: train-gpu instead of resourceClaimTemplateName: train-gpu",
    ),
    (a_claim_that_is_misspelt, 'ResourceClaim "default/train-gpus"; did you mean train-gpu?', "create the claim"),
    (
        a_claim_of_another_namespace,
        "there is one in namespace ml, and a pod can use those of its own namespace only",
        "create claim train-gpu in namespace default, or the pod in namespace ml",
    ),
    (
        a_template_of_another_namespace,
        "there is one in namespace ml",
        "create claim template one in namespace default, or the pod in namespace ml",
    ),
    (a_cordoned_node, "cordoned", "kubectl uncordon node-1"),
    (
        selected_nowhere,
        "none exist",
        "slice node-1-gpus has 2 devices that no node can reach: node selector zone In b matches none; label the nodes",
    ),
]


@pytest.mark.parametrize(("plant", "wrong", "remedy"), PROBLEMS, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_wrong_and_what_to_do(
    plant: Callable[[Cluster], None], wrong: str, remedy: str, tmp_path: Path
) -> None:
    cluster = Cluster()
    plant(cluster)
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    result = CliRunner().invoke(explain, ["pod/train", "-f", str(file)])
    assert result.exit_code == 1
    first, second = result.output.splitlines()[:2]
    assert wrong in first
    assert remedy in second
