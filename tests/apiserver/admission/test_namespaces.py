"""Namespaces: where nothing may be made, and which ones stay."""

import pytest
from tests.apiserver.admission.world import DRA, World, admitted_claim


async def test_nothing_is_made_in_a_namespace_that_is_not_there(world: World) -> None:
    error = await world.refused(f"{DRA}:resourceclaims", admitted_claim(), namespace="ghost")
    assert (error.code, error.message) == (404, 'namespaces "ghost" not found')
    claim = admitted_claim()
    await world.admit(f"{DRA}:resourceclaims", claim, claim, namespace="ghost")
    await world.admit(f"{DRA}:resourceclaims", None, claim, namespace="ghost")


async def test_nothing_new_in_a_namespace_that_ends(world: World) -> None:
    await world.put("Namespace", "doomed", status={"phase": "Terminating"})
    error = await world.refused(f"{DRA}:resourceclaims", admitted_claim("late"), namespace="doomed")
    assert error.code == 403
    assert error.message == (
        'resourceclaims.resource.k8s.io "late" is forbidden: unable to create new content in namespace doomed because '
        "it is being terminated"
    )
    assert error.details is not None
    assert error.details["causes"][0]["reason"] == "NamespaceTerminating"


@pytest.mark.parametrize(("name", "code"), [("default", 403), ("kube-system", 403), ("kube-public", 403), ("x", 0)])
async def test_some_namespaces_stay(world: World, name: str, code: int) -> None:
    old = {"metadata": {"name": name}}
    if code:
        error = await world.refused("namespaces", None, old)
        assert error.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    else:
        await world.admit("namespaces", None, old)
