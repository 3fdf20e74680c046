"""Prepare and unprepare on a stand-in card: what a container gets, and which daemons run meanwhile."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.driver.nvidia.standin import UUID, StandInCard, StandInInstance
from tests.waiting import eventually_blocking

from dray.api.meta import ObjectMeta
from dray.api.quantity import Quantity
from dray.api.resource import ResourceClaim, ResourceClaimConsumerReference, ResourceClaimStatus
from dray.driver import AllocatedDevice, ClaimReference, ClaimToPrepare, DeviceConfig, PrepareError
from dray.kubelet.runtime.process_start import joined_lists
from dray.telemetry import Registry


def claim_to_prepare(name, *devices, pods=()):
    users = [ResourceClaimConsumerReference(resource="pods", name=pod, uid="u") for pod in pods or (f"pod-{name}",)]
    status = ResourceClaimStatus(reserved_for=tuple(users))
    claim = ResourceClaim(metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"), status=status)
    return ClaimToPrepare(ClaimReference("default", name, f"uid-{name}"), devices, claim)


def allocated_device(device="gpu-0", *, share=None, config=(), admin=False, **capacity):
    return AllocatedDevice(
        request="gpu",
        pool="h200",
        device=device,
        share_id=share,
        consumed_capacity={name: Quantity.parse(value) for name, value in capacity.items()},
        admin_access=admin,
        config=tuple(DeviceConfig("FromClaim", each) for each in config),
    )


def gpu_config(**sharing):
    return {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing}


def environment_of(prepared):
    return dict(entry.split("=", 1) for entry in prepared.edits.env)


def mps_pids(tmp_path):
    """Processes of the control daemons that belong to this test."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and f"{tmp_path}/nv/bin/nvidia-cuda-mps-control".encode() in (
                folder / "cmdline"
            ).read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


# --- a card for one claim


def test_a_container_gets_nodes_libraries_and_its_card(make_driver, tmp_path):
    (prepared,) = make_driver().prepare(claim_to_prepare("one", allocated_device()))
    edits = prepared.edits
    assert [node.path.rpartition("/")[2] for node in edits.device_nodes] == [
        "nvidia0",
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-uvm-tools",
    ]
    mounted = {mount.container_path for mount in edits.mounts}
    assert f"{tmp_path}/nv/lib64/libcuda.so.1" in mounted
    assert f"{tmp_path}/nv/bin/nvidia-smi" in mounted
    environment = environment_of(prepared)
    assert environment["LD_LIBRARY_PATH"] == f"{tmp_path}/nv/lib64"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert joined_lists(environment) == {"CUDA_VISIBLE_DEVICES": UUID}
    assert mps_pids(tmp_path) == []


def test_a_process_with_two_cards_sees_both(make_driver, library):
    library.cards = [StandInCard(), StandInCard(uuid="GPU-second", minor=1)]
    prepared = make_driver().prepare(claim_to_prepare("two", allocated_device(), allocated_device("gpu-1")))
    environment = environment_of(prepared[0]) | environment_of(prepared[1])
    assert joined_lists(environment) == {"CUDA_VISIBLE_DEVICES": f"{UUID},GPU-second"}


def test_the_hook_of_the_container_toolkit_is_used_where_it_is(make_driver, tmp_path):
    driver = make_driver()
    hook = tmp_path / "nv/bin/nvidia-cdi-hook"
    hook.write_text("")
    driver.restore(tmp_path / "data")
    (prepared,) = driver.prepare(claim_to_prepare("one", allocated_device()))
    (found,) = prepared.edits.hooks
    assert (found.hook_name, found.path) == ("createContainer", str(hook))
    assert found.args[1:] == ("update-ldcache", f"--folder={tmp_path}/nv/lib64")
    assert "LD_LIBRARY_PATH" not in environment_of(prepared)


# --- shares


def test_shares_run_under_one_daemon_with_limits_of_their_own(make_driver, tmp_path):
    driver = make_driver(is_shared=True)
    (first,) = driver.prepare(
        claim_to_prepare("forty", allocated_device(share="s1", memory="40Gi", multiprocessors="33"))
    )
    (second,) = driver.prepare(
        claim_to_prepare("eighty", allocated_device(share="s2", memory="80Gi", multiprocessors="0"))
    )
    one, two = environment_of(first), environment_of(second)
    assert one["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=40960M"
    assert one["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert two["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=81920M"
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in two
    assert one["CUDA_MPS_PIPE_DIRECTORY"] == two["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path / "data/mps/gpu-0/pipe")
    assert {"/dev/shm", one["CUDA_MPS_PIPE_DIRECTORY"]} <= {mount.host_path for mount in first.edits.mounts}
    assert len(mps_pids(tmp_path)) == 1


def test_the_daemon_ends_with_the_last_share(make_driver, tmp_path):
    driver = make_driver(is_shared=True)
    claims = [claim_to_prepare(name, allocated_device(share=name, memory="10Gi")) for name in ("a", "b")]
    for claim in claims:
        driver.prepare(claim)
    driver.unprepare(claims[0].reference)
    assert len(mps_pids(tmp_path)) == 1
    driver.unprepare(claims[1].reference)
    assert mps_pids(tmp_path) == []
    assert not (tmp_path / "data/mps/gpu-0").exists()


def test_a_claim_that_takes_all_memory_needs_no_daemon(make_driver, tmp_path):
    (prepared,) = make_driver(is_shared=True).prepare(
        claim_to_prepare("all", allocated_device(share="s", memory="140Gi"))
    )
    assert "CUDA_MPS_PIPE_DIRECTORY" not in environment_of(prepared)
    assert mps_pids(tmp_path) == []


def test_prepare_answers_the_same_when_it_is_called_again(make_driver, tmp_path):
    driver = make_driver(is_shared=True)
    claim = claim_to_prepare("again", allocated_device(share="s", memory="10Gi"))
    assert list(driver.prepare(claim)) == list(driver.prepare(claim))
    assert len(mps_pids(tmp_path)) == 1


def test_a_claim_cannot_share_two_cards(make_driver, library, tmp_path):
    library.cards = [StandInCard(), StandInCard(uuid="GPU-second", minor=1)]
    driver = make_driver(is_shared=True)
    devices = (allocated_device(share="s1", memory="10Gi"), allocated_device("gpu-1", share="s2", memory="10Gi"))
    with pytest.raises(PrepareError, match="one card only"):
        driver.prepare(claim_to_prepare("both", *devices))
    assert mps_pids(tmp_path) == []


def test_a_daemon_that_does_not_start_is_told_to_the_user(make_driver, tmp_path):
    driver = make_driver(is_shared=True)
    broken = tmp_path / "data/mps/gpu-0/broken"
    broken.parent.mkdir(parents=True)
    broken.write_text("")
    with pytest.raises(PrepareError, match="CUDA MPS does not start: cannot create the socket"):
        driver.prepare(claim_to_prepare("one", allocated_device(share="s", memory="10Gi")))


def test_a_share_without_the_control_program_is_refused(make_driver, tmp_path):
    driver = make_driver(is_shared=True)
    (tmp_path / "nv/bin/nvidia-cuda-mps-control").unlink()
    driver.restore(tmp_path / "data")
    with pytest.raises(PrepareError, match="nvidia-cuda-mps-control is not among the driver's programs"):
        driver.prepare(claim_to_prepare("one", allocated_device(share="s", memory="10Gi")))


# --- a driver that is started anew


def test_the_next_life_keeps_the_daemon_of_a_claim(make_driver, tmp_path):
    make_driver(is_shared=True).prepare(claim_to_prepare("one", allocated_device(share="s", memory="10Gi")))
    before = mps_pids(tmp_path)
    later = make_driver(is_shared=True)
    assert mps_pids(tmp_path) == before != []
    later.unprepare(ClaimReference("default", "one", "uid-one"))
    assert mps_pids(tmp_path) == []


def test_the_next_life_starts_a_daemon_that_died(make_driver, tmp_path):
    make_driver(is_shared=True).prepare(claim_to_prepare("one", allocated_device(share="s", memory="10Gi")))
    (pid,) = mps_pids(tmp_path)
    os.kill(pid, signal.SIGKILL)
    make_driver(is_shared=True)
    assert len(mps_pids(tmp_path)) == 1
    assert mps_pids(tmp_path) != [pid]


def test_the_next_life_ends_a_daemon_that_no_claim_needs(make_driver, tmp_path):
    make_driver(is_shared=True).prepare(claim_to_prepare("one", allocated_device(share="s", memory="10Gi")))
    (tmp_path / "data/claims.json").unlink()
    make_driver(is_shared=True)
    assert mps_pids(tmp_path) == []


def test_the_watch_starts_a_daemon_that_died(make_driver, tmp_path):
    driver = make_driver(is_shared=True)
    driver.prepare(claim_to_prepare("one", allocated_device(share="s", memory="10Gi")))
    (pid,) = mps_pids(tmp_path)
    os.kill(pid, signal.SIGKILL)
    eventually_blocking(lambda: mps_pids(tmp_path) == [])
    driver._health.register(driver._cards)
    driver._look(looks_for_cards=False)
    assert len(mps_pids(tmp_path)) == 1


def test_a_daemon_that_does_not_quit_is_killed(make_driver, tmp_path, monkeypatch):
    monkeypatch.setattr("dray.driver.nvidia.mps._STOP_WITHIN_S", 0.2)
    driver = make_driver(is_shared=True)
    claim = claim_to_prepare("one", allocated_device(share="s", memory="10Gi"))
    driver.prepare(claim)
    (tmp_path / "data/mps/gpu-0/pipe/stubborn").write_text("")
    driver.unprepare(claim.reference)
    assert mps_pids(tmp_path) == []


def test_unprepare_of_an_unknown_claim_is_fine(make_driver):
    make_driver().unprepare(ClaimReference("default", "never", "seen"))


# --- parameters


def test_mps_by_parameters_sets_their_limits(make_driver, tmp_path):
    config = gpu_config(
        strategy="MPS",
        mpsConfig={"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"},
    )
    (prepared,) = make_driver().prepare(claim_to_prepare("one", allocated_device(config=[config])))
    environment = environment_of(prepared)
    assert environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=10240M"
    assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert len(mps_pids(tmp_path)) == 1


def test_parameters_cannot_widen_a_share(make_driver):
    config = gpu_config(strategy="MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "90Gi"})
    (prepared,) = make_driver(is_shared=True).prepare(
        claim_to_prepare("one", allocated_device(share="s", config=[config], memory="40Gi"))
    )
    assert environment_of(prepared)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=40960M"


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"apiVersion": "v1", "kind": "GpuConfig"}, "apiVersion 'v1': must be resource.nvidia.com/v1beta1"),
        ({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "MigDeviceConfig"}, "kind 'MigDeviceConfig'"),
        ({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "speed": 1}, "unknown field `speed`"),
        (gpu_config(strategy="Magic"), "sharing.strategy 'Magic': must be MPS or TimeSlicing"),
        (
            gpu_config(strategy="TimeSlicing", timeSlicingConfig={"interval": "Long"}),
            "sharing.timeSlicingConfig.interval 'Long': must be Default",
        ),
        (gpu_config(strategy="MPS", timeSlicingConfig={}), "sharing.timeSlicingConfig: not allowed"),
        (gpu_config(strategy="TimeSlicing", mpsConfig={}), "sharing.mpsConfig: not allowed"),
        (
            gpu_config(strategy="MPS", mpsConfig={"defaultActiveThreadPercentage": 0}),
            "defaultActiveThreadPercentage 0: must be 1 to 100",
        ),
        (
            gpu_config(strategy="MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "much"}),
            "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit 'much'",
        ),
        (
            gpu_config(strategy="MPS", mpsConfig={"defaultPerDevicePinnedMemoryLimit": {"0": "1Gi"}}),
            "defaultPerDevicePinnedMemoryLimit '0': this driver knows devices by UUID only",
        ),
    ],
)
def test_parameters_that_cannot_be_followed_are_refused_with_the_field(make_driver, tmp_path, parameters, complaint):
    with pytest.raises(PrepareError, match="opaque parameters") as refusal:
        make_driver().prepare(claim_to_prepare("one", allocated_device(config=[parameters])))
    assert complaint in str(refusal.value)
    assert mps_pids(tmp_path) == []
    assert not (tmp_path / "data/claims.json").exists()


def test_time_slicing_as_the_card_does_it_anyway_is_accepted(make_driver):
    config = gpu_config(strategy="TimeSlicing", timeSlicingConfig={"interval": "Default"})
    (prepared,) = make_driver().prepare(claim_to_prepare("one", allocated_device(config=[config])))
    assert "CUDA_MPS_PIPE_DIRECTORY" not in environment_of(prepared)


# --- MIG


def test_a_claim_gets_the_instance_that_exists(make_driver, library):
    library.cards = [StandInCard(has_mig=True, instances=[StandInInstance(3, 9, 4)])]
    (prepared,) = make_driver().prepare(claim_to_prepare("one", allocated_device("gpu-0-mig-3g71gb-9-4")))
    assert joined_lists(environment_of(prepared)) == {"CUDA_VISIBLE_DEVICES": "MIG-0-3"}


def test_dynamic_mig_makes_an_instance_and_removes_it(make_driver, library):
    library.cards = [StandInCard(has_mig=True)]
    driver = make_driver(has_dynamic_mig=True)
    claim = claim_to_prepare("one", allocated_device("gpu-0-mig-3g71gb-9-4"))
    (prepared,) = driver.prepare(claim)
    assert joined_lists(environment_of(prepared)) == {"CUDA_VISIBLE_DEVICES": "MIG-0-1"}
    assert [(each.profile, each.start) for each in library.cards[0].instances] == [(9, 4)]
    assert list(driver.prepare(claim)) == [prepared]
    driver.unprepare(claim.reference)
    assert library.cards[0].instances == []


def test_a_half_made_instance_is_removed_again(make_driver, library):
    library.cards = [StandInCard(has_mig=True)]
    driver = make_driver(has_dynamic_mig=True)
    library.fails["nvmlGpuInstanceCreateComputeInstance"] = 3
    with pytest.raises(PrepareError, match="cannot compute"):
        driver.prepare(claim_to_prepare("one", allocated_device("gpu-0-mig-3g71gb-9-4")))
    assert library.cards[0].instances == []


def test_without_the_option_no_instance_is_made(make_driver, library):
    library.cards = [StandInCard(has_mig=True)]
    with pytest.raises(PrepareError, match="not on this machine any more"):
        make_driver().prepare(claim_to_prepare("one", allocated_device("gpu-0-mig-3g71gb-9-4")))
    assert library.cards[0].instances == []


# --- metrics


def metric_lines(driver, prefix):
    registry = Registry()
    driver.add_metrics(registry)
    return [line for line in registry.text().splitlines() if line.startswith(prefix)]


def test_metrics_name_the_claim_and_the_pod(make_driver, library):
    driver = make_driver(is_shared=True)
    driver.prepare(claim_to_prepare("one", allocated_device(share="s", memory="10Gi")))
    library.cards[0].used = 5 << 30
    driver._health.register(driver._cards)
    driver._look(looks_for_cards=False)
    registry = Registry()
    driver.add_metrics(registry)
    text = registry.text()
    labels = f'device="gpu-0",uuid="{UUID}",namespace="default",claim="one",pod="pod-one"'
    assert f"dray_nvidia_memory_used_bytes{{{labels}}} {5 << 30}\n" in text
    assert f"dray_nvidia_utilization_ratio{{{labels}}} 0.25\n" in text
    assert f"dray_nvidia_energy_joules_total{{{labels}}} 2881.358\n" in text
    limit = 'dray_nvidia_claim_memory_limit_bytes{device="gpu-0",namespace="default",claim="one",pod="pod-one"}'
    assert f"{limit} {10 << 30}\n" in text


def test_numbers_of_a_shared_card_are_those_of_no_claim(make_driver, library):
    """A sum over claims must not count the card twice, and a share must not look as if it used the whole card."""
    driver = make_driver(is_shared=True)
    for name in ("one", "two"):
        driver.prepare(claim_to_prepare(name, allocated_device(share=name, memory="10Gi")))
    library.cards[0].used = 5 << 30
    driver._read_usage()
    labels = f'device="gpu-0",uuid="{UUID}",namespace="default",claim="",pod=""'
    assert metric_lines(driver, "dray_nvidia_memory_used_bytes{") == [
        f"dray_nvidia_memory_used_bytes{{{labels}}} {5 << 30}"
    ]
    assert len(metric_lines(driver, "dray_nvidia_energy_joules_total{")) == 1
    assert len(metric_lines(driver, "dray_nvidia_claim_memory_limit_bytes{")) == 2


def test_a_number_names_the_claims_of_its_time(make_driver, library):
    """What was read while two claims had the card does not become the number of the one that stays."""
    driver = make_driver(is_shared=True)
    one, two = (claim_to_prepare(name, allocated_device(share=name, memory="10Gi")) for name in ("one", "two"))
    driver.prepare(one)
    driver.prepare(two)
    driver._read_usage()
    driver.unprepare(two.reference)
    (line,) = metric_lines(driver, "dray_nvidia_memory_used_bytes{")
    assert 'claim=""' in line
    driver._read_usage()
    (line,) = metric_lines(driver, "dray_nvidia_memory_used_bytes{")
    assert 'claim="one"' in line


def test_a_claim_of_two_pods_is_counted_once(make_driver):
    driver = make_driver()
    driver.prepare(claim_to_prepare("one", allocated_device(), pods=("a", "b")))
    driver._read_usage()
    labels = 'namespace="default",claim="one",pod=""'
    (of_card,) = metric_lines(driver, "dray_nvidia_memory_used_bytes{")
    (of_claim,) = metric_lines(driver, "dray_nvidia_claim_memory_used_bytes{")
    assert labels in of_card
    assert labels in of_claim


def test_memory_of_a_claim_is_that_of_its_processes(make_driver, library):
    """Two claims share a card, with the numbers of the real card; the MPS server's memory is no claim's. The processes are real."""
    driver = make_driver(is_shared=True)
    environments = [()]
    for name in ("forty", "eighty", "eighty"):
        (device,) = driver.prepare(claim_to_prepare(name, allocated_device(share=name, memory="40Gi")))
        environments.append(device.edits.env)
    with _running_with(*environments) as (server, forty, eighty, second_of_eighty):
        library.cards[0].processes = [
            (server, 69206016),
            (forty, 32923189248),
            (eighty, 76059508736),
            (second_of_eighty, 1 << 20),
            (2**22 + 1, 1 << 40),
        ]
        driver._read_usage()
    assert _memory_by_claim(driver) == {"forty": 32923189248, "eighty": 76059508736 + (1 << 20)}


def test_memory_of_a_process_with_two_parts_of_a_card_is_counted_once(make_driver, library):
    library.cards[0].has_mig = True
    library.cards[0].instances = [StandInInstance(1, 14, 0), StandInInstance(2, 14, 2)]
    driver = make_driver()
    names = [device.name for device in driver.published_pools[0].devices]
    prepared = driver.prepare(claim_to_prepare("one", *map(allocated_device, names)))
    with _running_with([entry for device in prepared for entry in device.edits.env]) as (pid,):
        library.cards[0].processes = [(pid, 3 << 30)]
        driver._read_usage()
    assert len(names) == 2
    assert _memory_by_claim(driver) == {"one": 3 << 30}


def _memory_by_claim(driver):
    lines = metric_lines(driver, "dray_nvidia_claim_memory_used_bytes{")
    found = [(line.partition('claim="')[2].partition('"')[0], float(line.rpartition(" ")[2])) for line in lines]
    assert len(found) == len(dict(found)), "a claim has one line"
    return dict(found)


@contextlib.contextmanager
def _running_with(*environments):
    """Process numbers of real processes that have these environments."""
    running = []
    try:
        for environment in environments:
            running.append(_started_with(environment))
        yield [process.pid for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()


def _started_with(environment):
    """A process whose environment can be read: it has said that it runs."""
    process = subprocess.Popen(
        [sys.executable, "-ISc", "print(flush=True); input()"],
        env=dict(each.split("=", 1) for each in environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    return process


def test_records_of_claims_are_readable(make_driver, tmp_path):
    make_driver(is_shared=True).prepare(claim_to_prepare("one", allocated_device(share="s", memory="10Gi")))
    record = json.loads((tmp_path / "data/claims.json").read_text())["uid-one"]
    assert record["pods"] == ["pod-one"]
    assert record["uses"] == [{"device": "gpu-0", "card": "gpu-0", "uses_mps": True, "memory_bytes": 10 << 30}]
