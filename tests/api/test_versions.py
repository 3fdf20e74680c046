import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.codec import shape_document
from dray.api.defaults import apply_defaults
from dray.api.versions import from_storage, storage_version, to_storage

V1 = "resource.k8s.io/v1"
V1BETA1 = "resource.k8s.io/v1beta1"
V1BETA2 = "resource.k8s.io/v1beta2"


def claim(api_version: str, *requests: dict) -> dict:
    return {"apiVersion": api_version, "kind": "ResourceClaim", "spec": {"devices": {"requests": list(requests)}}}


def versioned_slice(api_version: str, *devices: dict, **spec: object) -> dict:
    return {"apiVersion": api_version, "kind": "ResourceSlice", "spec": {"devices": list(devices), **spec}}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            claim(V1BETA1, {"name": "a", "deviceClassName": "gpu", "count": 2}),
            claim(V1, {"name": "a", "exactly": {"deviceClassName": "gpu", "count": 2}}),
            id="a-request-goes-under-exactly",
        ),
        pytest.param(
            claim(V1BETA1, {"name": "a", "deviceClassName": "", "firstAvailable": [{"name": "x"}]}),
            claim(V1, {"name": "a", "firstAvailable": [{"name": "x"}]}),
            id="alternatives-have-no-exactly",
        ),
        pytest.param(
            versioned_slice(
                V1BETA1, {"name": "d", "basic": {"attributes": {"a": {"int": 1}}}}, {"name": "e", "basic": {}}
            ),
            versioned_slice(V1, {"name": "d", "attributes": {"a": {"int": 1}}}, {"name": "e"}),
            id="devices-lose-basic",
        ),
    ],
)
def test_v1beta1_both_ways(old, new):
    assert to_storage(old) == new
    assert from_storage(new, V1BETA1) == old


def test_zero_values_of_an_old_slice_mean_unset():
    assert to_storage(versioned_slice(V1BETA1, nodeName="", allNodes=False))["spec"] == {"devices": []}
    assert to_storage(versioned_slice(V1BETA1, {"name": "no-basic"}))["spec"]["devices"] == [{"name": "no-basic"}]


def test_templates_convert_inside():
    template = {
        "apiVersion": V1BETA1,
        "kind": "ResourceClaimTemplate",
        "spec": {"spec": {"devices": {"requests": [{"name": "a", "deviceClassName": "gpu"}]}}},
    }
    stored = to_storage(template)
    assert stored["spec"]["spec"]["devices"]["requests"] == [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]
    assert from_storage(stored, V1BETA1) == template


def test_v1beta2_has_the_shape_of_v1():
    assert to_storage(claim(V1BETA2, {"name": "a"})) == claim(V1, {"name": "a"})
    assert from_storage(claim(V1, {"name": "a"}), V1BETA2) == claim(V1BETA2, {"name": "a"})


def test_pool_status_requests_stay_alpha():
    assert storage_version({"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest"}) == (
        "resource.k8s.io/v1alpha3"
    )
    assert storage_version({"apiVersion": "v1", "kind": "Pod"}) == "v1"


asks = st.fixed_dictionaries(
    {"deviceClassName": st.sampled_from(["gpu", "nic"])},
    optional={
        "count": st.integers(1, 4),
        "allocationMode": st.sampled_from(["All", "ExactCount"]),
        "adminAccess": st.booleans(),
        "selectors": st.lists(st.just({"cel": {"expression": "true"}}), max_size=2),
        "tolerations": st.lists(st.just({"key": "a", "operator": "Exists"}), max_size=1),
        "capacity": st.just({"requests": {"mem": "1Gi"}}),
    },
)
requests = st.one_of(
    st.builds(lambda ask: {"name": "a", "exactly": ask}, asks),
    st.builds(
        lambda ask: {
            "name": "b",
            "firstAvailable": [{"name": "x", **{k: v for k, v in ask.items() if k != "adminAccess"}}],
        },
        asks,
    ),
)
devices = st.fixed_dictionaries(
    {"name": st.sampled_from(["d0", "d1"])},
    optional={
        "attributes": st.dictionaries(st.sampled_from(["a", "b"]), st.just({"int": 0})),
        "taints": st.just([{"key": "k", "effect": "None", "timeAdded": "2026-01-01T00:00:00Z"}]),
        "allowMultipleAllocations": st.booleans(),
        "nodeName": st.just("n"),
        "nodeAllocatableResourceMappings": st.just({"cpu": {"allocationMultiplier": "1"}}),
    },
)


@given(
    st.one_of(
        st.lists(requests, max_size=3).map(lambda r: claim(V1, *r)),
        st.lists(devices, max_size=3).map(lambda d: versioned_slice(V1, *d)),
    )
)
def test_nothing_is_lost_on_the_way_through_an_old_version(document):
    before = shape_document(document).document
    old = from_storage(before, V1BETA1)
    again = shape_document(old)
    assert again.unknown_fields == ()
    assert to_storage(again.document) == before
    # Reading through the old version fills in what reading the new one fills in.
    now = "2026-01-01T00:00:00Z"
    assert to_storage(apply_defaults(old, now)) == apply_defaults(before, now)
