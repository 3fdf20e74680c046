"""The claims of a node: who uses what, what must be called, what is refused."""

import pytest
from msgspec import structs

from dray.api.codec import to_object
from dray.api.core import (
    Pod,
    PodExtendedResourceClaimStatus,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSpec,
    PodStatus,
)
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    ResourceClaim,
)
from dray.kubelet.checkpoint import CheckpointCorrupt, CheckpointFile
from dray.kubelet.claims import (
    PREPARE,
    UNPREPARE,
    CheckpointedDevice,
    ClaimCache,
    ClaimRefused,
    check_claim,
    created_claims,
    new_claim_state,
)
from tests.builders.manifests import a_claim, a_result

POD = Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="pod-1"))


def allocated_claim(name="c", uid="u", drivers=("gpu",), reserved_for=("pod-1",), skips=(), owner=""):
    results = [
        a_result(f"d-{i}", driver=driver, pool="pool", **({"skipNodeOperations": list(skip)} if skip else {}))
        for i, (driver, skip) in enumerate(zip(drivers, skips or ((),) * len(drivers), strict=True))
    ]
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": True}] if owner else []
    users = [{"resource": "pods", "name": "p", "uid": each} for each in reserved_for]
    document = a_claim(
        name, namespace="ns", uid=uid, results=results, status={"reservedFor": users}, ownerReferences=owners
    )
    return to_object(document, ResourceClaim)


def pod_with_entries(*entries, statuses=(), extended=None):
    return structs.replace(
        POD,
        spec=PodSpec(resource_claims=tuple(entries)),
        status=PodStatus(resource_claim_statuses=tuple(statuses), extended_resource_claim_status=extended),
    )


def test_claims_come_in_spec_order_and_the_extended_one_last():
    pod = pod_with_entries(
        PodResourceClaim(name="b", resource_claim_name="direct"),
        PodResourceClaim(name="a", resource_claim_template_name="t"),
        PodResourceClaim(name="none", resource_claim_template_name="t"),
        statuses=[PodResourceClaimStatus(name="a", resource_claim_name="made"), PodResourceClaimStatus(name="none")],
        extended=PodExtendedResourceClaimStatus(resource_claim_name="ext"),
    )
    assert [(c.entry, c.claim_name) for c in created_claims(pod)] == [("b", "direct"), ("a", "made"), ("", "ext")]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (PodResourceClaim(name="x", resource_claim_template_name="t"), 'pod "ns/p": ResourceClaim not created yet'),
        (PodResourceClaim(name="x"), "none of the supported fields are set"),
    ],
)
def test_claims_that_cannot_be_named_are_refused(entry, text):
    with pytest.raises(ClaimRefused, match=text):
        created_claims(pod_with_entries(entry))


@pytest.mark.parametrize(
    ("claim", "from_template", "text"),
    [
        (
            allocated_claim(reserved_for=("other",)),
            False,
            r"pod p \(pod-1\) is not allowed to use ResourceClaim c \(u\)",
        ),
        (allocated_claim(owner="other"), True, r"was not created for Pod ns/p \(Pod is not owner\)"),
        (
            structs.replace(allocated_claim(), status=structs.replace(allocated_claim().status, allocation=None)),
            False,
            "c: not allocated",
        ),
        (allocated_claim(skips=(("*",),)), False, "DRAOptionalNodeOperations feature gate is disabled"),
    ],
)
def test_claims_that_must_not_be_used_are_refused(claim, from_template, text):
    pod_claim = created_claims(pod_with_entries(PodResourceClaim(name="x", resource_claim_name="c")))[0]
    if from_template:
        pod = pod_with_entries(
            PodResourceClaim(name="x", resource_claim_template_name="t"),
            statuses=[PodResourceClaimStatus(name="x", resource_claim_name="c")],
        )
        pod_claim = created_claims(pod)[0]
    with pytest.raises(ClaimRefused, match=text):
        check_claim(POD, pod_claim, claim, may_skip_operations=False)


def test_a_shared_claim_is_given_back_by_the_last_pod():
    cache = ClaimCache()
    cache.enter(allocated_claim(), "pod-1")
    cache.enter(allocated_claim(), "pod-2")
    assert cache.leave("pod-1") == []
    assert [state.key for state in cache.leave("pod-2")] == ["ns/c"]
    with pytest.raises(ClaimRefused, match="ResourceClaim c is being unprepared"):
        cache.enter(allocated_claim(), "pod-3")
    cache.remove("ns/c")
    assert cache.enter(allocated_claim(), "pod-3").pod_uids == {"pod-3"}


def test_a_claim_with_the_same_name_waits_for_the_old_one():
    cache = ClaimCache()
    cache.enter(allocated_claim(uid="old"), "pod-1")
    with pytest.raises(ClaimRefused, match="old ResourceClaim with same name c and different UID old still exists"):
        cache.enter(allocated_claim(uid="new"), "pod-2")


def test_a_pod_that_never_got_that_far_leaves_nothing():
    cache = ClaimCache()
    cache.enter(allocated_claim(), "pod-1")
    assert cache.leave("stranger") == []
    assert cache.get("ns/c").pod_uids == {"pod-1"}


def test_answers_replace_each_other():
    cache = ClaimCache()
    cache.enter(allocated_claim(), "pod-1")
    for _ in range(2):
        cache.store_devices("ns/c", "gpu", [CheckpointedDevice("pool", "d-0", ("r",), ("v/c=x",))])
    assert len(cache.get("ns/c").drivers["gpu"].devices) == 1


@pytest.mark.parametrize(
    ("skips", "prepare", "unprepare"),
    [
        ((("*",), ("*",)), [], []),
        ((("NodeUnprepareResources",), ("*",)), ["gpu"], []),
        (((), ("*",)), ["gpu"], ["gpu"]),
    ],
)
def test_a_call_is_skipped_only_if_every_device_of_the_driver_skips_it(skips, prepare, unprepare):
    state = new_claim_state(allocated_claim(drivers=("gpu", "gpu"), skips=skips))
    assert state.drivers_to_call(PREPARE) == prepare
    assert state.drivers_to_call(UNPREPARE) == unprepare


@pytest.mark.parametrize(
    ("requests", "asked", "serves"),
    [((), "a", True), (("a",), "a", True), (("a",), "b", False), (("a",), "", True)],
)
def test_devices_serve_the_requests_they_name(requests, asked, serves):
    assert CheckpointedDevice("p", "d", requests).serves(asked) is serves


def test_the_checkpoint_keeps_all_but_the_flags(tmp_path):
    cache = ClaimCache()
    cache.enter(allocated_claim(skips=(("NodeUnprepareResources",),)), "pod-1")
    cache.store_devices("ns/c", "gpu", [CheckpointedDevice("pool", "d-0", ("r",), ("v/c=x",), "share")])
    cache.set_prepared("ns/c")
    file = CheckpointFile(tmp_path)
    assert file.read() == []
    file.write(cache)
    (state,) = file.read()
    expected = cache.get("ns/c")
    assert (state.uid, state.pod_uids, state.drivers) == (expected.uid, expected.pod_uids, expected.drivers)
    assert not state.is_prepared
    assert file.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "{", '{"Data":"{}","Checksum":1}', '{"Checksum":0}', "[]", "\x00\xff"])
def test_a_checkpoint_that_cannot_be_trusted_says_so(tmp_path, content):
    file = CheckpointFile(tmp_path)
    file.path.write_text(content)
    with pytest.raises(CheckpointCorrupt):
        file.read()
    assert file.set_aside().read_text() == content
    assert file.read() == []
