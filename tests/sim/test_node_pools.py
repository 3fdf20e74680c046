"""Node pools: what a file may say, what is wrong with others, and the nodes and slices that come of them."""

import pytest
import yaml

from dray.client import NODES, SLICES
from dray.driver import Device, Driver, Pool
from dray.features import FeatureGates
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions
from dray.sim.node_pools import NodePool, NodePoolError, check_node_pools, read_node_pools
from dray.sim.nodes import make_nodes
from tests.short_paths import tmp_path as tmp_path

FPGA = {"driver": "fpga.example.com", "devices": [{"name": "fpga-0"}]}


class OneDevice(Driver):
    name = "one.example.com"

    def pools(self, node_name):
        return [Pool(node_name, (Device(name="d-0"),))]


def file_with(tmp_path, *pools):
    path = tmp_path / "pools.yaml"
    path.write_text(yaml.safe_dump({"nodePools": list(pools)}))
    return path


@pytest.mark.parametrize(
    ("pools", "text"),
    [
        ([{"name": "Big"}], "node pool 'Big': name: a lowercase RFC 1123 label"),
        ([{"name": "a"}, {"name": "a"}], "node pool a is there twice"),
        ([{"count": -1}], "count: -1 must not be negative"),
        ([{"count": 30000}], "at most 20000 nodes"),
        ([{"cpu": "lots"}], "node pool 'node': cpu: "),
        ([{"cpu": 8}], "Expected `str`, got `int` - at `$.nodePools[0].cpu`"),
        ([{"gpus": 8}], "Object contains unknown field `gpus` - at `$.nodePools[0]`"),
        ([{"devices": ["tpu"]}], "devices: tpu: no such devices; known are cpu, gpu, gpu-shared, nic"),
        ([{"drivers": ["MyDriver"]}], "drivers: only drivers of Dray can be named, under devices"),
        ([{"slices": [{"devices": []}]}], "slices[0]: driver: must be a name, not None"),
        ([{"slices": [{"spec": 3}]}], "slices[0]: spec: must be an object"),
        ([{"slices": [{**FPGA, "pool": {"name": 7}}]}], "slices[0]: pool.name: must be a name, not 7"),
        ([{"slices": ["fpga"]}], "Expected `object`, got `str` - at `$.nodePools[0].slices[0]`"),
        ([{"slices": [{**FPGA, "allNodes": True}]}], "slices[0]: allNodes: the slices of a node pool belong to its"),
        ([{"slices": [{**FPGA, "device": []}]}], 'slices[0]: strict decoding error: unknown field "spec.device"'),
        (
            [{"slices": [{**FPGA, "devices": [{"name": "FPGA"}]}]}],
            'slices[0]: spec.devices[0].name: Invalid value: "FPGA": a lowercase RFC 1123 label',
        ),
        (
            [{"count": 2, "slices": [{**FPGA, "pool": {"name": "rack"}}]}],
            "slices[0]: pool.name: 'rack' must contain {node}, since the node pool has 2 nodes",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path, pools, text):
    path = file_with(tmp_path, *pools)
    with pytest.raises(NodePoolError) as caught:
        read_node_pools(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("nodePools: [", "while parsing a flow"),
        ("[]", "Expected `object`, got `array`"),
        ("pools: []", "unknown field"),
        ("", "Expected `object`, got `null`"),
    ],
)
def test_a_file_that_is_no_list_of_pools_is_refused(tmp_path, content, text):
    path = tmp_path / "pools.yaml"
    path.write_text(content)
    with pytest.raises(NodePoolError) as caught:
        read_node_pools(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert text in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(NodePoolError, match=r"no-such\.yaml: No such file or directory"):
        read_node_pools(tmp_path / "no-such.yaml")


def test_one_driver_cannot_serve_several_nodes():
    with pytest.raises(NodePoolError, match=r"OneDevice\(\) is one driver for 2 nodes; give OneDevice or a function"):
        check_node_pools([NodePool(count=2, drivers=(OneDevice(),))])
    check_node_pools([NodePool(count=2, drivers=(OneDevice,)), NodePool("single", drivers=(OneDevice(),))])


COPIED = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "worker-7-abc", "uid": "x"},
    "spec": {
        "driver": "copied.example.com",
        "nodeName": "worker-7",
        "pool": {"name": "worker-7", "generation": 12, "resourceSliceCount": 1},
        "devices": [{"name": "d-0", "attributes": {"serial": {"string": "{node}-1"}}}],
    },
}


@pytest.mark.parametrize("simulated", [True, False])
async def test_nodes_have_what_their_pool_says(tmp_path, simulated):
    plane = ControlPlane(ControlPlaneOptions(tmp_path / "data", with_controllers=False, with_scheduler=False))
    await plane.start()
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    big = {"name": "big", "count": 2, "cpu": "32", "labels": {"zone": "a"}, "taints": [taint], "simulated": simulated}
    path = file_with(tmp_path, {**big, "slices": [FPGA, COPIED]}, {"name": "small", "simulated": True})
    nodes = make_nodes(plane.client("test"), read_node_pools(path), tmp_path / "n", FeatureGates.default())
    told = []
    await nodes.start(told.append)
    try:
        client = plane.client("test")
        made = {each.metadata.name: each for each in (await client.list(NODES)).items}
        assert sorted(made) == ["big-1", "big-2", "small-1"]
        assert str(made["big-2"].status.allocatable["cpu"]) == "32"
        assert made["big-2"].metadata.labels["zone"] == "a"
        assert [each.key for each in made["big-2"].spec.taints if each.key == "dedicated"] == ["dedicated"]
        assert not [each for each in made["small-1"].spec.taints if each.key == "dedicated"]
        slices = {(each.spec.driver, each.spec.node_name): each.spec for each in (await client.list(SLICES)).items}
        assert len(slices) == 4
        copied = slices["copied.example.com", "big-2"]
        assert copied.pool.name == "big-2"
        assert copied.devices[0].attributes["serial"].string == "big-2-1"
        assert not simulated or told[-1] == 3
    finally:
        await nodes.stop()
        await plane.stop()
