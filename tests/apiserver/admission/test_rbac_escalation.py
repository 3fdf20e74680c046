"""Nobody hands out what they do not hold."""

from tests.apiserver.admission.world import ADMIN, ALICE, Document, World, grant, meta

RBAC = "rbac.authorization.k8s.io"


async def test_nobody_hands_out_what_they_do_not_hold(world: World) -> None:
    held = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
    await grant(world, ALICE, held)
    await world.admit(f"{RBAC}:roles", {"metadata": meta("r"), "rules": [{**held, "verbs": ["get"]}]}, user=ALICE)
    wanted = {"metadata": meta("r"), "rules": [{**held, "verbs": ["get", "delete"]}]}
    error = await world.refused(f"{RBAC}:roles", wanted, user=ALICE)
    assert error.code == 403
    assert error.message == (
        'roles.rbac.authorization.k8s.io "r" is forbidden: user "alice" (groups=["dev" "system:authenticated"]) is '
        'attempting to grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}'
    )
    await world.admit(f"{RBAC}:roles", wanted, user=ADMIN)
    await world.admit(f"{RBAC}:roles", {**wanted, "metadata": meta("r", labels={"a": "b"})}, wanted, user=ALICE)
    everything = {"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [{}]}}
    await world.refused(f"{RBAC}:clusterroles", everything, user=ALICE)


async def test_nobody_binds_a_role_they_do_not_hold(world: World) -> None:
    def binding(role: str, kind: str = "ClusterRole", subject: str = "alice") -> Document:
        reference = {"apiGroup": RBAC, "kind": kind, "name": role}
        return {"metadata": meta("b"), "subjects": [{"kind": "User", "name": subject}], "roleRef": reference}

    for resource in (f"{RBAC}:rolebindings", f"{RBAC}:clusterrolebindings"):
        assert (await world.refused(resource, binding("cluster-admin"), user=ALICE)).code == 403
        assert (await world.refused(resource, binding("none"), user=ALICE)).code == 404
        await world.admit(resource, binding("cluster-admin"), user=ADMIN)
    await grant(
        world, ALICE, {"verbs": ["bind"], "apiGroups": [RBAC], "resources": ["clusterroles"], "resourceNames": ["view"]}
    )
    await world.admit(f"{RBAC}:rolebindings", binding("view"), user=ALICE)
    await world.refused(f"{RBAC}:rolebindings", binding("edit"), user=ALICE)
    await world.refused(
        f"{RBAC}:clusterrolebindings", binding("cluster-admin"), binding("cluster-admin", subject="bob"), user=ALICE
    )
    labelled = {**binding("cluster-admin"), "metadata": meta("b", labels={"a": "b"})}
    # Who is bound to what stays as it is.
    await world.admit(f"{RBAC}:clusterrolebindings", labelled, binding("cluster-admin"), user=ALICE)
