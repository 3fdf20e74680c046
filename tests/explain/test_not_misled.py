"""Something stands beside the cause and looks like it; the explanation is not misled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from dray.cli.explain import explain
from tests.explain.manifests import DRIVER, Cluster, Document, a_device, a_slice


def explained(cluster: Cluster, path: Path) -> dict[str, Any]:
    file = path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster.documents()}))
    result = CliRunner().invoke(explain, ["pod/train", "-f", str(file), "-o", "json"])
    assert result.exit_code == 1, result.output
    verdict: dict[str, Any] = json.loads(result.stdout)
    return verdict


def unfinished(driver: str, devices: list[Document]) -> Document:
    pool = {"name": "half", "generation": 1, "resourceSliceCount": 2}
    made = a_slice(devices=devices, driver=driver, pool=pool)
    made["metadata"]["name"] = "half"
    return made


def texts(verdict: dict[str, Any]) -> list[str]:
    return [row["text"] for row in verdict["helps"]]


# --- pools


def test_an_incomplete_pool_of_another_driver_is_not_the_cause(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.device_class["spec"]["selectors"][0]["cel"]["expression"] = 'device.driver == "tpu.example.com"'
    cluster.add(unfinished("nic.example.com", [a_device("nic-0")]))
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "class-selector"
    assert "incomplete" not in verdict["message"]


def test_an_incomplete_pool_with_devices_that_match_is_the_cause(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.select(f'device.attributes["{DRIVER}"].model == "h100"')
    new = a_device("gpu-7")
    new["attributes"]["model"] = {"string": "h100"}
    cluster.add(unfinished(DRIVER, [new]))
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "incomplete-pool"
    assert f"pool {DRIVER}/half is incomplete: 1 of 2 slices are there" in verdict["message"]


def test_an_incomplete_pool_without_devices_that_match_is_not(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.select(f'device.attributes["{DRIVER}"].model == "h100"')
    cluster.add(unfinished(DRIVER, [a_device("gpu-7")]))
    assert explained(cluster, tmp_path)["code"] == "request-selector"


# --- taints


def tainted(device: Document, *keys: str) -> None:
    device["taints"] = [{"key": f"example.com/{key}", "effect": "NoSchedule"} for key in keys]


def test_both_taints_of_a_device_have_to_be_tolerated(tmp_path: Path) -> None:
    cluster = Cluster()
    for device in cluster.devices:
        tainted(device, "broken", "hot")
    verdict = explained(cluster, tmp_path)
    assert verdict["code"] == "taint"
    both = "example.com/broken:NoSchedule, example.com/hot:NoSchedule"
    assert f"taints {both} are not tolerated" in json.dumps(verdict)
    assert texts(verdict) == [f"tolerate {both} in the request (then node-1 fits)"]


def test_the_fewest_taints_are_suggested(tmp_path: Path) -> None:
    cluster = Cluster()
    tainted(cluster.devices[0], "broken", "hot")
    tainted(cluster.devices[1], "hot")
    assert texts(explained(cluster, tmp_path)) == [
        "tolerate example.com/hot:NoSchedule in the request (then node-1 fits)"
    ]


def test_two_devices_may_need_the_taints_of_both(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.request["count"] = 2
    tainted(cluster.devices[0], "broken")
    tainted(cluster.devices[1], "hot")
    assert texts(explained(cluster, tmp_path)) == [
        "tolerate example.com/broken:NoSchedule, example.com/hot:NoSchedule in the request (then node-1 fits)"
    ]


# --- selectors


def test_the_nearest_device_is_of_the_driver_that_was_meant(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.device_class["spec"]["selectors"] = []
    cluster.select('device.attributes["gpu.exampel.com"].model == "a100"')
    other = a_slice(driver="cpu.example.com")
    other["metadata"]["name"] = "cpus"
    cluster.add(other)
    nearest = explained(cluster, tmp_path)["nodes"][0]["nearest"]
    assert nearest["device"].startswith(DRIVER)
    assert nearest["hints"] == [
        'device.attributes["gpu.exampel.com"] is not published; did you mean "gpu.example.com"?'
    ]
