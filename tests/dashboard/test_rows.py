"""What the rows say of objects, without a browser."""

import msgspec
import pytest

from dray.allocator import Inventory, Ledger
from dray.allocator.pools import PoolView
from dray.api.codec import to_object
from dray.api.core import ContainerStatus, Node, Pod, ResourceHealth, ResourceStatus
from dray.api.dra.pod_phase import is_waiting_for_node
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.dashboard.device_health import (
    DeviceHealthReports,
    reported_by,
)
from dray.dashboard.device_rows import (
    device_documents,
    occupancy_of,
    pool_row,
    shape_row,
)
from dray.dashboard.object_rows import (
    claim_row,
    node_row,
    pending_row,
)
from tests.builders.manifests import a_claim, a_result, a_slice

POOL = ("d.example.com", "pool")


def published_slice(devices: list[dict[str, object]], **spec: object) -> ResourceSlice:
    name = "s" if devices else "counters"
    document = a_slice(name, *devices, node="n", driver=POOL[0], pool="pool", slices=spec.pop("slices", 1), **spec)
    return to_object(document, ResourceSlice)


def held_claim(*results: dict[str, object], name: str = "c", **status: object) -> ResourceClaim:
    full = [a_result(driver=POOL[0], pool=POOL[1], **result) for result in results]
    document = a_claim(name, namespace="ns", uid=name, results=full, status=dict(status))
    return to_object(document, ResourceClaim)


def view_of(*published: ResourceSlice) -> PoolView:
    inventory = Inventory()
    for each in published:
        inventory.apply_slice(each)
    view = inventory.whole_pool(POOL)
    assert view is not None
    return view


def row_of(
    published: ResourceSlice, *claims: ResourceClaim, health: DeviceHealthReports | None = None
) -> dict[str, object]:
    view, ledger = view_of(published), Ledger(claims=claims)
    return pool_row(view, occupancy_of(view, ledger), ledger, health or DeviceHealthReports(), "0")


CARD = {"counterSet": "card", "counters": {"slices": {"value": "2"}}}
HALF = {"counterSet": "card", "counters": {"slices": {"value": "1"}}}
TAINT = {"key": "k", "effect": "NoSchedule"}
PARTED = (
    published_slice(
        [
            {"name": "whole", "consumesCounters": [CARD]},
            {"name": "left", "consumesCounters": [HALF]},
            {"name": "right", "consumesCounters": [HALF]},
        ],
        slices=2,
    ),
    published_slice([], slices=2, sharedCounters=[{"name": "card", "counters": {"slices": {"value": "2"}}}]),
)


@pytest.mark.parametrize(
    ("device", "results", "letter"),
    [
        pytest.param({}, [], "f", id="free"),
        pytest.param({}, [{"device": "a"}], "u", id="in-use"),
        pytest.param({}, [{"device": "a", "adminAccess": True}], "f", id="an-administrator-only-looks"),
        pytest.param({"taints": [TAINT]}, [], "t", id="tainted"),
        pytest.param({"taints": [{"key": "k", "effect": "None"}]}, [], "f", id="a-taint-without-effect"),
        pytest.param({"taints": [TAINT]}, [{"device": "a"}], "u", id="in-use-although-tainted"),
        pytest.param(
            {"allowMultipleAllocations": True, "capacity": {"m": {"value": "4"}}},
            [{"device": "a", "shareID": "1", "consumedCapacity": {"m": "1"}}],
            "p",
            id="one-share",
        ),
        pytest.param(
            {"allowMultipleAllocations": True, "capacity": {"m": {"value": "4"}}},
            [{"device": "a", "shareID": str(i), "consumedCapacity": {"m": "2"}} for i in (1, 2)],
            "u",
            id="shares-take-everything",
        ),
    ],
)
def test_use_of_a_device(device: dict[str, object], results: list[dict[str, object]], letter: str) -> None:
    claims = [held_claim(result, name=f"c{i}") for i, result in enumerate(results)]
    assert row_of(published_slice([{"name": "a", **device}]), *claims)["use"] == letter


def test_a_taint_of_a_device_in_use_is_marked() -> None:
    row = row_of(published_slice([{"name": "a", "taints": [TAINT]}, {"name": "b"}]), held_claim({"device": "a"}))
    assert row["tainted"] == [0]


@pytest.mark.parametrize(
    ("held", "uses"),
    [
        pytest.param([], "fff", id="nothing"),
        pytest.param(["left"], "buf", id="a-half-blocks-the-whole"),
        pytest.param(["whole"], "ubb", id="the-whole-blocks-the-halves"),
        pytest.param(["left", "right"], "buu", id="both-halves"),
    ],
)
def test_counters_block_devices(held: list[str], uses: str) -> None:
    claims = [held_claim({"device": name}, name=name) for name in held]
    view, ledger = view_of(*PARTED), Ledger(claims=claims)
    assert pool_row(view, occupancy_of(view, ledger), ledger, DeviceHealthReports(), "0")["use"] == uses


def test_devices_of_one_counter_set_are_one_group() -> None:
    view = view_of(*PARTED)
    assert shape_row(view) == {"names": ["whole", "left", "right"], "groups": ["card"], "group": [0, 0, 0]}
    documents = device_documents(view, Ledger(claims=[held_claim({"device": "left"})]), DeviceHealthReports())
    assert documents[0]["counters"] == [["card", "slices", "2", "1", "2"]]


def test_shares_have_bars() -> None:
    device = {"name": "a", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "16Gi"}}}
    claim = held_claim({"device": "a", "shareID": "1", "consumedCapacity": {"memory": "4Gi"}})
    assert row_of(published_slice([device]), claim)["shares"] == {"0": [["memory", "4Gi", "16Gi", 25.0]]}


def test_an_incomplete_pool_says_so() -> None:
    row = row_of(published_slice([{"name": "a"}], slices=3))
    assert (row["state"], row["problem"]) == ("incomplete", "1 of 3 slices are published")


def test_a_pool_of_many_nodes_has_no_node() -> None:
    assert row_of(published_slice([{"name": "a"}], nodeName=None, allNodes=True))["node"] == ""
    assert row_of(published_slice([{"name": "a"}]))["node"] == "n"


# --- health


def test_health_by_condition_and_its_end() -> None:
    health = DeviceHealthReports()
    bad = {"type": "Ready", "status": "False", "reason": "Hot", "message": "97 degrees"}
    status = {"driver": POOL[0], "pool": POOL[1], "device": "a", "conditions": [bad]}
    health.put_claim(held_claim({"device": "a"}, devices=[status]))
    published = published_slice([{"name": "a"}, {"name": "b"}])
    row = row_of(published, held_claim({"device": "a"}), health=health)
    assert (row["use"], row["unhealthy"]) == ("uf", [0])
    health.put_claim(held_claim({"device": "a"}))
    assert "unhealthy" not in row_of(published, held_claim({"device": "a"}), health=health)


@pytest.mark.parametrize(
    ("resource_id", "sick"),
    [
        pytest.param("d.example.com/pool/gpu-1", {"gpu-1"}, id="device"),
        pytest.param("d.example.com/claim=0-1-gpu-1", {"gpu-1"}, id="cdi-name"),
        pytest.param("d.example.com/claim=0-1-gpu-1-part", {"gpu-1-part"}, id="longest-name"),
        pytest.param("other/claim=7", {"gpu-1", "gpu-1-part"}, id="any-of-them"),
    ],
)
def test_health_by_pod_status(resource_id: str, sick: set[str]) -> None:
    claim = held_claim({"device": "gpu-1"}, {"device": "gpu-1-part"})
    lines = (ResourceHealth(resource_id=resource_id, health="Unhealthy"), ResourceHealth("x", "Healthy"))
    status = ContainerStatus(allocated_resources_status=(ResourceStatus("claim:gpus", lines),))
    pod = to_object(
        {
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"resourceClaims": [{"name": "gpus", "resourceClaimName": "c"}]},
        },
        Pod,
    )
    pod = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, container_statuses=(status,)))
    assert {device for _, _, device in reported_by(pod, {("ns", "c"): claim})} == sick


# --- nodes, claims, pods


def test_a_node_that_is_not_ready_says_why() -> None:
    conditions = [
        {"type": "Ready", "status": "Unknown", "message": "no news"},
        {"type": "MemoryPressure", "status": "True", "message": "full"},
        {"type": "DiskPressure", "status": "False"},
    ]
    node = to_object({"kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": conditions}}, Node)
    assert node_row(node, None)["problems"] == ["not ready: no news", "MemoryPressure: full"]


@pytest.mark.parametrize(
    ("claim", "state"),
    [
        pytest.param(held_claim(), "waiting", id="waiting"),
        pytest.param(held_claim({"device": "a"}), "allocated", id="allocated"),
        pytest.param(
            held_claim({"device": "a"}, reservedFor=[{"resource": "pods", "name": "p", "uid": "1"}]),
            "in use",
            id="in-use",
        ),
    ],
)
def test_state_of_a_claim(claim: ResourceClaim, state: str) -> None:
    assert claim_row(claim, [])["state"] == state


def test_a_pod_waits_until_it_has_a_node_or_goes() -> None:
    def pod(**parts: object) -> Pod:
        document = {"kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}, "spec": {}, "status": {}, **parts}
        return to_object(document, Pod)

    assert is_waiting_for_node(pod())
    assert pending_row(pod())["message"] == "the scheduler has not tried the pod yet"
    assert not is_waiting_for_node(pod(spec={"nodeName": "n"}))
    assert not is_waiting_for_node(pod(status={"phase": "Failed"}))
    assert not is_waiting_for_node(pod(metadata={"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}))
