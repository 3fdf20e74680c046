"""Pods off tainted devices: when, why, when not, and what rules say about it."""

from datetime import UTC, datetime, timedelta

import pytest

from dray.allocator.pools import taint_rule_matches
from dray.api.dra.pod_claims import claim_from_template
from dray.api.dra.taints import tolerates
from dray.api.resource import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector, DeviceToleration
from dray.client import CLAIMS, PODS, SLICES, TAINT_RULES, TEMPLATES, ApiError
from dray.controllers.controller_manager import (
    BUILDERS,
    ControllerOptions,
)
from dray.controllers.taint_eviction import TaintEvictionController
from dray.controllers.taint_eviction.deadlines import eviction_time, rule_selects
from dray.features import FeatureGates
from tests.builders.manifests import a_device, a_taint_rule
from tests.controllers.builders import DRIVER, ns_claim, ns_pod, ns_template, pool_slice

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_taint(key="sick", effect="NoExecute", value="", age_s=0):
    added = datetime.now(UTC) - timedelta(seconds=age_s)
    return {"key": key, "effect": effect, "value": value, "timeAdded": added.strftime("%Y-%m-%dT%H:%M:%SZ")}


def tainted_device(*taints, name="dev"):
    return a_device(name, taints=list(taints))


async def a_user(cluster, name="pod", claim="claim", namespace="ns", device="dev", tolerations=(), node="node"):
    """A pod on a node, with an allocated and reserved claim."""
    pod = await cluster.client.create(PODS, ns_pod(name, namespace, claims={"gpu": claim}, node=node))
    await cluster.client.create(CLAIMS, ns_claim(claim, namespace))
    await cluster.allocate(claim, pod, namespace=namespace, device=device, tolerations=tolerations)
    return pod


async def is_leaving(cluster, name="pod", namespace="ns"):
    pod = await cluster.pod(name, namespace)
    return pod is None or pod.metadata.deletion_timestamp is not None


async def evicted(cluster, name="pod", namespace="ns"):
    async def look():
        return await is_leaving(cluster, name, namespace)

    await cluster.eventually(look)


async def stays(cluster, name="pod"):
    await cluster.quiet()
    assert not await is_leaving(cluster, name)


async def publish(cluster, *devices, **fields):
    return await cluster.client.create(SLICES, pool_slice(devices=list(devices), **fields))


async def republish(cluster, *devices, name="slice"):
    document = await cluster.client.get_document(SLICES, name)
    document["spec"]["devices"] = list(devices)
    await cluster.client.update(SLICES, document)


async def messages(cluster):
    return [event.message for event in await cluster.events("DeviceTaintManagerEviction")]


async def condition_of(cluster, name="rule"):
    rule = await cluster.client.get(TAINT_RULES, name)
    return rule.status.conditions[0] if rule.status.conditions else None


# --- who is evicted


async def test_L1_a_tainted_device_drives_its_pod_off_with_condition_and_event(cluster):
    await a_user(cluster)
    await cluster.start(TaintEvictionController)
    await publish(cluster, tainted_device(a_taint()))
    await evicted(cluster)
    pod = await cluster.pod()
    condition = next(item for item in pod.status.conditions if item.type == "DisruptionTarget")
    assert (condition.status, condition.reason) == ("True", "DeletionByDeviceTaintManager")
    assert condition.message == "Device Taint manager: deleting due to NoExecute taint"

    async def told():
        return await messages(cluster) == ["Marking for deletion"]

    await cluster.eventually(told)
    text = cluster.registry.text()
    assert "device_taint_eviction_controller_pod_deletions_total 1" in text
    assert "device_taint_eviction_controller_pod_deletion_duration_seconds_count 1" in text


async def test_a_rule_drives_pods_off_too(cluster):
    await publish(cluster, tainted_device())
    await a_user(cluster)
    await cluster.start(TaintEvictionController)
    await cluster.client.create(TAINT_RULES, a_taint_rule(driver=DRIVER, pool="pool", device="dev"))
    await evicted(cluster)


async def test_a_rule_works_on_devices_that_are_not_published(cluster):
    await a_user(cluster)
    await cluster.start(TaintEvictionController)
    await cluster.client.create(TAINT_RULES, a_taint_rule(driver=DRIVER))
    await evicted(cluster)


async def test_rules_of_an_older_version_work_too(cluster):
    await a_user(cluster)
    older = TAINT_RULES.at_version("v1beta2")
    await cluster.start(lambda context: TaintEvictionController(context, rules=older))
    await cluster.client.create(older, {**a_taint_rule(driver=DRIVER), "apiVersion": "resource.k8s.io/v1beta2"})
    await evicted(cluster)


@pytest.mark.parametrize("off", ["gate", "not-served"])
async def test_rules_are_ignored_when_their_gate_is_off_or_no_server_has_them(cluster, off):
    await a_user(cluster)
    on = FeatureGates.default().on - ({"DRADeviceTaintRules"} if off == "gate" else set())
    kinds = [TAINT_RULES] if off == "gate" else []
    build = BUILDERS[TaintEvictionController.name]
    await cluster.start(lambda context: build(context, ControllerOptions(), kinds), gates=FeatureGates(on))
    await cluster.client.create(TAINT_RULES, a_taint_rule(driver=DRIVER))
    await stays(cluster)


@pytest.mark.parametrize("effect", ["NoSchedule", "None"])
async def test_other_effects_evict_nobody(cluster, effect):
    await a_user(cluster)
    await publish(cluster, tainted_device(a_taint(effect=effect)))
    await cluster.start(TaintEvictionController)
    await stays(cluster)


async def test_a_taint_on_another_device_or_pool_evicts_nobody(cluster):
    await a_user(cluster)
    await publish(cluster, tainted_device(), tainted_device(a_taint(), name="other"))
    await publish(cluster, tainted_device(a_taint()), name="slice2", pool="pool2")
    await cluster.start(TaintEvictionController)
    await cluster.client.create(TAINT_RULES, a_taint_rule(driver=DRIVER, device="other"))
    await stays(cluster)


async def test_a_pod_without_a_node_stays_and_goes_once_it_is_placed(cluster):
    await publish(cluster, tainted_device(a_taint()))
    pod = await a_user(cluster, node="")
    await cluster.start(TaintEvictionController)
    await stays(cluster)
    await cluster.client.bind(pod, "node")
    await evicted(cluster)


async def test_a_claim_reserved_for_another_pod_concerns_nobody_else(cluster):
    await publish(cluster, tainted_device(a_taint()))
    await cluster.client.create(PODS, ns_pod("bystander", claims={"gpu": "claim"}, node="node"))
    await a_user(cluster)
    await cluster.start(TaintEvictionController)
    await evicted(cluster)
    await stays(cluster, "bystander")


async def test_a_template_claim_counts_only_if_it_is_the_pods_own(cluster):
    await publish(cluster, tainted_device(a_taint()))
    template = await cluster.client.create(TEMPLATES, ns_template())
    pods = {}
    for name in ("mine", "theirs"):
        pods[name] = await cluster.client.create(PODS, ns_pod(name, templates={"gpu": "template"}, node="node"))
        patch = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]}}
        await cluster.client.patch(PODS, name, patch, "ns", subresource="status")
    import msgspec

    claim = claim_from_template(pods["mine"], "gpu", template)
    metadata = msgspec.structs.replace(claim.metadata, name="made", generate_name="")
    await cluster.client.create(CLAIMS, msgspec.structs.replace(claim, metadata=metadata))
    await cluster.allocate("made", pods["mine"], pods["theirs"], device="dev")
    await cluster.start(TaintEvictionController)
    await evicted(cluster, "mine")
    await stays(cluster, "theirs")


async def test_only_the_newest_generation_counts(cluster):
    await a_user(cluster)
    await publish(cluster, tainted_device(a_taint()))
    await publish(cluster, tainted_device(), name="newer", generation=2)
    await cluster.start(TaintEvictionController)
    await stays(cluster)
    await cluster.client.delete(SLICES, "newer")
    await evicted(cluster)


async def test_many_pods_leave_in_parallel(cluster):
    await cluster.start(TaintEvictionController)
    devices = [f"d{number}" for number in range(20)]
    await publish(cluster, *(tainted_device(name=name) for name in devices))
    for name in devices:
        await a_user(cluster, f"pod-{name}", f"claim-{name}", device=name)
    await cluster.client.create(TAINT_RULES, a_taint_rule(driver=DRIVER))
    for name in devices:
        await evicted(cluster, f"pod-{name}")


# --- tolerations and time


def tolerating(**fields):
    return {"key": "sick", "operator": "Exists", "effect": "NoExecute", **fields}


async def test_a_toleration_without_seconds_keeps_the_pod_for_ever(cluster):
    await a_user(cluster, tolerations=[tolerating()])
    await publish(cluster, tainted_device(a_taint()))
    await cluster.start(TaintEvictionController)
    await stays(cluster)


async def test_L1_a_toleration_with_seconds_is_waited_for(cluster):
    await a_user(cluster, tolerations=[tolerating(tolerationSeconds=4)])
    await publish(cluster, tainted_device(a_taint()))
    controller = await cluster.start(TaintEvictionController)
    await cluster.quiet()
    assert len(controller.pending) == 1
    assert not await is_leaving(cluster)
    await evicted(cluster)


async def test_a_second_taint_that_is_not_tolerated_decides(cluster):
    await a_user(cluster, tolerations=[tolerating(tolerationSeconds=3600)])
    await publish(cluster, tainted_device(a_taint(), a_taint("broken")))
    await cluster.start(TaintEvictionController)
    await evicted(cluster)


@pytest.mark.parametrize(
    "undo",
    [
        pytest.param(lambda cluster: republish(cluster, tainted_device()), id="taint-removed"),
        pytest.param(lambda cluster: cluster.client.delete(SLICES, "slice"), id="slice-removed"),
        pytest.param(
            lambda cluster: republish(cluster, tainted_device(a_taint(effect="NoSchedule"))), id="effect-lowered"
        ),
        pytest.param(
            lambda cluster: publish(cluster, tainted_device(), name="newer", generation=2), id="slice-replaced"
        ),
    ],
)
async def test_L2_a_cause_that_disappears_in_time_cancels_the_eviction(cluster, undo):
    await a_user(cluster, tolerations=[tolerating(tolerationSeconds=3600)])
    await publish(cluster, tainted_device(a_taint()))
    controller = await cluster.start(TaintEvictionController)

    async def marked():
        return await messages(cluster) == ["Marking for deletion"]

    await cluster.eventually(marked)
    await undo(cluster)

    async def cancelled():
        return sorted(await messages(cluster)) == ["Cancelling deletion", "Marking for deletion"]

    await cluster.eventually(cancelled)
    assert controller.pending == {}
    assert controller.queue.delayed == 0
    await stays(cluster)


async def test_a_pod_that_leaves_by_itself_is_forgotten_silently(cluster):
    await a_user(cluster, tolerations=[tolerating(tolerationSeconds=3600)])
    await publish(cluster, tainted_device(a_taint()))
    controller = await cluster.start(TaintEvictionController)

    async def pending():
        return controller.pending

    await cluster.eventually(pending)
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)

    async def forgotten():
        return not controller.pending

    await cluster.eventually(forgotten)
    await cluster.quiet()
    assert "Cancelling deletion" not in await messages(cluster)


async def test_a_deallocated_claim_ends_the_matter(cluster):
    await a_user(cluster, tolerations=[tolerating(tolerationSeconds=3600)])
    await publish(cluster, tainted_device(a_taint()))
    controller = await cluster.start(TaintEvictionController)

    async def pending():
        return controller.pending

    await cluster.eventually(pending)
    document = await cluster.client.get_document(CLAIMS, "claim", "ns")
    document["status"] = {}
    await cluster.client.update_status(CLAIMS, document)

    async def forgotten():
        return not controller.pending

    await cluster.eventually(forgotten)


# --- races


async def test_L3_a_replacement_under_the_same_name_is_not_touched(cluster):
    await a_user(cluster)
    await cluster.start(TaintEvictionController)

    async def replace():
        await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)
        await cluster.client.create(PODS, ns_pod(node="node"))

    cluster.wire.before("PATCH", "/pods/pod/status$", replace)
    await publish(cluster, tainted_device(a_taint()))

    async def tried():
        return cluster.wire.count("PATCH", "/pods/pod/status$")

    await cluster.eventually(tried)
    await stays(cluster)
    pod = await cluster.pod()
    assert not any(item.type == "DisruptionTarget" for item in pod.status.conditions)
    assert "device_taint_eviction_controller_pod_deletions_total 0" in cluster.registry.text()


@pytest.mark.parametrize(
    ("method", "path"), [("PATCH", "/pods/pod/status$"), ("DELETE", "/pods/pod$"), ("GET", "/pods/pod$")]
)
async def test_L5_a_failed_eviction_is_tried_again_and_counted_once(cluster, method, path):
    await a_user(cluster)
    cluster.wire.fail(method, path, ApiError(500, "InternalError", "x"), times=2)
    await cluster.start(TaintEvictionController)
    await publish(cluster, tainted_device(a_taint()))
    await evicted(cluster)
    await cluster.quiet()
    assert "device_taint_eviction_controller_pod_deletions_total 1" in cluster.registry.text()


# --- rule status


async def test_a_rule_tells_how_many_pods_have_to_go(cluster):
    await cluster.namespace("ns2")
    tolerations = [tolerating(tolerationSeconds=3600)]
    await a_user(cluster, "a", "ca", device="d1", tolerations=tolerations)
    await a_user(cluster, "b", "cb", device="d2", tolerations=tolerations)
    await a_user(cluster, "c", "cc", namespace="ns2", device="d3", tolerations=tolerations)
    controller = await cluster.start(TaintEvictionController)
    controller_module = __import__("dray.controllers.taint_eviction.controller", fromlist=["RULE_STATUS_INTERVAL_S"])
    assert controller_module.RULE_STATUS_INTERVAL_S == 10.0
    await cluster.client.create(TAINT_RULES, a_taint_rule(driver=DRIVER))

    async def told():
        return len(controller.pending) == 3

    await cluster.eventually(told)
    # The rest is said when ten seconds have passed; ask for it now.
    controller._rule_written_at.clear()
    controller.queue.add(("rule", "rule"))

    async def counted():
        condition = await condition_of(cluster)
        return condition if condition and condition.message.startswith("3 pods") else None

    condition = await cluster.eventually(counted)
    assert (condition.type, condition.status, condition.reason) == ("EvictionInProgress", "True", "PodsPendingEviction")
    assert condition.message == (
        "3 pods need to be evicted in 2 different namespaces. 0 pods evicted since starting the controller."
    )


async def test_a_rule_is_completed_after_its_evictions(cluster):
    await a_user(cluster)
    controller = await cluster.start(TaintEvictionController)
    await cluster.client.create(TAINT_RULES, a_taint_rule(driver=DRIVER))
    await evicted(cluster)
    await cluster.quiet()
    controller._rule_written_at.clear()
    controller.queue.add(("rule", "rule"))

    async def done():
        condition = await condition_of(cluster)
        return condition if condition and condition.reason == "Completed" else None

    condition = await cluster.eventually(done)
    assert (condition.status, condition.message) == ("False", "1 pod evicted since starting the controller.")


@pytest.mark.parametrize(
    ("effect", "reason", "start"),
    [
        pytest.param("NoExecute", "NotStarted", "0 pods evicted since", id="nobody-concerned"),
        pytest.param("NoSchedule", "OtherEffect", "Eviction only happens", id="no-schedule"),
    ],
)
async def test_rules_that_evict_nobody_say_so(cluster, effect, reason, start):
    await cluster.start(TaintEvictionController)
    await cluster.client.create(TAINT_RULES, a_taint_rule(effect=effect, driver="another.example.com"))

    async def told():
        return await condition_of(cluster)

    condition = await cluster.eventually(told)
    assert (condition.status, condition.reason) == ("False", reason)
    assert condition.message.startswith(start)


async def test_L4_a_dry_run_counts_and_evicts_nobody_and_is_written_once(cluster):
    await a_user(cluster)
    await publish(cluster, tainted_device(), tainted_device(name="free"))
    await cluster.start(TaintEvictionController)
    await cluster.client.create(TAINT_RULES, a_taint_rule(effect="None", driver=DRIVER))

    async def told():
        return await condition_of(cluster)

    condition = await cluster.eventually(told)
    assert condition.reason == "NoEffect"
    assert condition.message.startswith(
        "2 published devices selected. 1 allocated device selected. "
        "1 pod would be evicted in 1 namespace if the effect was NoExecute."
    )
    await a_user(cluster, "later", "claim2", device="free")
    await stays(cluster)
    assert await condition_of(cluster) == condition
    document = await cluster.client.get_document(TAINT_RULES, "rule")
    document["spec"]["taint"]["effect"] = "NoExecute"
    await cluster.client.update(TAINT_RULES, document)
    await evicted(cluster)
    await evicted(cluster, "later")


# --- pure answers


def toleration(key="", operator="", value="", effect="NoExecute", seconds=None):
    return DeviceToleration(key=key, operator=operator, value=value, effect=effect, toleration_seconds=seconds)


@pytest.mark.parametrize(
    ("tolerations", "expected_s"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([toleration("k", value="v", seconds=60)], 60, id="equal"),
        pytest.param([toleration("k", "Equal", "other", seconds=60)], 0, id="other-value"),
        pytest.param([toleration(operator="Exists", seconds=60)], 60, id="any-key"),
        pytest.param([toleration("", "Equal", "v", seconds=60)], 60, id="empty-key-with-equal-value"),
        pytest.param([toleration("k", "Exists", effect="", seconds=60)], 0, id="empty-effect-is-not-enough"),
        pytest.param([toleration("k", "Exists", effect="NoSchedule", seconds=60)], 0, id="other-effect"),
        pytest.param([toleration("k", "Exists", seconds=9), toleration("k", "Exists", seconds=5)], 5, id="smallest"),
        pytest.param([toleration("k", "Exists", seconds=-3)], 0, id="negative-is-zero"),
        pytest.param([toleration("k", "Exists", seconds=9), toleration("k", "Exists")], None, id="for-ever"),
        pytest.param([toleration("k", "Unknown", seconds=60)], 0, id="unknown-operator"),
    ],
)
def test_eviction_time(tolerations, expected_s):
    taint = DeviceTaint(key="k", value="v", effect="NoExecute", time_added="2025-06-01T00:00:00Z")
    expected = None
    if expected_s is not None:
        expected = datetime(2025, 6, 1, tzinfo=UTC) + timedelta(seconds=expected_s)
    assert eviction_time(taint, tolerations, NOW) == expected


def test_a_taint_without_a_time_counts_from_now():
    assert eviction_time(DeviceTaint(key="k", effect="NoExecute"), [], NOW) == NOW
    assert eviction_time(DeviceTaint(key="k", effect="Sideways"), [], NOW) is None
    assert not tolerates(toleration("k", "Exists"), DeviceTaint(key="k", effect="NoSchedule"))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(None, False, id="no-selector"),
        pytest.param(DeviceTaintSelector(), True, id="empty"),
        pytest.param(DeviceTaintSelector(driver="d"), True, id="driver"),
        pytest.param(DeviceTaintSelector(driver="d", pool="p", device="x"), True, id="all"),
        pytest.param(DeviceTaintSelector(driver="d", pool="other"), False, id="and"),
    ],
)
def test_rule_selectors(selector, expected):
    """For the scheduler a rule without a selector means every device: Kubernetes has both answers."""
    assert rule_selects(selector, "d", "p", "x") is expected
    rule = DeviceTaintRule(spec=DeviceTaintRuleSpec(device_selector=selector))
    assert taint_rule_matches(rule, "d", "p", "x") is (expected or selector is None)


async def test_nothing_to_do_is_nothing_done(cluster):
    await a_user(cluster)
    await publish(cluster, tainted_device())
    await cluster.start(TaintEvictionController)
    await cluster.quiet()
    before = len(cluster.wire.calls)
    await cluster.later_writes()
    assert len(cluster.wire.calls) == before
