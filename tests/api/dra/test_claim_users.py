"""Who may use a claim, as far as pods and claims alone can tell."""

import pytest
from tests.builders.manifests import a_claim, a_pod

from dray.api.codec import to_object
from dray.api.core import Pod
from dray.api.dra.claim_users import may_use, was_made_for
from dray.api.resource import ResourceClaim


def pod_in(group=None):
    spec = {"schedulingGroup": {"podGroupName": group}} if group else {}
    return to_object(a_pod("p", namespace="", uid="pod-1", **spec), Pod)


def used_claim(*users, owner=None):
    owners = [owner] if owner else []
    return to_object(
        a_claim("c", namespace="", ownerReferences=owners, status={"reservedFor": list(users)}), ResourceClaim
    )


GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "group-1"}


@pytest.mark.parametrize(
    ("users", "group", "expected"),
    [
        pytest.param([], None, False, id="nobody"),
        pytest.param([{"resource": "pods", "name": "p", "uid": "pod-1"}], None, True, id="the-pod"),
        pytest.param([{"resource": "pods", "name": "p", "uid": "pod-0"}], None, False, id="one-of-the-same-name"),
        pytest.param([GROUP], "g", True, id="its-group"),
        pytest.param([GROUP], "h", False, id="another-group"),
        pytest.param([GROUP], None, False, id="no-member"),
        pytest.param([{**GROUP, "apiGroup": "example.com"}], "g", False, id="something-else-of-that-name"),
        pytest.param([{"resource": "pods", "name": "x", "uid": "x"}, GROUP], "g", True, id="one-of-several"),
    ],
)
def test_who_is_let_in(users, group, expected):
    assert may_use(used_claim(*users), pod_in(group)) == expected


def an_owner(kind="Pod", name="p", uid="pod-1", api="v1", controller=True):
    return {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": controller}


@pytest.mark.parametrize(
    ("owner", "group", "expected"),
    [
        pytest.param(None, None, False, id="nobody"),
        pytest.param(an_owner(), None, True, id="the-pod"),
        pytest.param(an_owner(controller=False), None, False, id="not-its-controller"),
        pytest.param(an_owner(uid="pod-0"), None, False, id="one-of-the-same-name"),
        pytest.param(an_owner("PodGroup", "g", "u", "scheduling.k8s.io/v1beta1"), "g", True, id="its-group"),
        pytest.param(an_owner("PodGroup", "g", "u", "scheduling.k8s.io/v1alpha3"), "g", True, id="in-any-version"),
        pytest.param(an_owner("PodGroup", "g", "u", "example.com/v1"), "g", False, id="of-another-api"),
        pytest.param(an_owner("PodGroup", "g", "u", "scheduling.k8s.io/v1beta1"), None, False, id="no-member"),
    ],
)
def test_for_whom_it_was_made(owner, group, expected):
    assert was_made_for(used_claim(owner=owner), pod_in(group)) == expected
