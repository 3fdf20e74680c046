"""Who may allocate, reserve and report on devices."""

import copy

from tests.apiserver.admission.world import ALICE, DRA, Document, World, admitted_claim, grant

from dray.apiserver.request.request_info import User

ON_N1 = {
    "devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"}]},
    "nodeSelector": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    },
}
DEVICE_STATUS = {"driver": "gpu.example.com", "pool": "p", "device": "d", "conditions": []}
STATUS = f"{DRA}:resourceclaims/status"


def rule(verbs: list[str], *resources: str, names: tuple[str, ...] = ()) -> Document:
    found: Document = {"verbs": verbs, "apiGroups": [DRA], "resources": list(resources)}
    return {**found, "resourceNames": list(names)} if names else found


async def test_allocating_needs_the_right_to_bind(world: World) -> None:
    allocated = admitted_claim("c", allocation=ON_N1)
    reserved = admitted_claim("c", allocation=ON_N1, reservedFor=[{"resource": "pods", "name": "p", "uid": "u"}])
    for new, old in ((allocated, admitted_claim("c")), (reserved, allocated), (admitted_claim("c"), allocated)):
        error = await world.refused(STATUS, new, old, user=ALICE)
        assert error.code == 422
        assert (
            "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires "
            'resource="resourceclaims/binding", verb="update" permission: ' in error.message
        )
        error = await world.refused(STATUS, new, old, user=ALICE, verb="patch")
        assert 'verb="patch"' in error.message
    await grant(world, ALICE, rule(["update"], "resourceclaims/binding"))
    await world.admit(STATUS, allocated, admitted_claim("c"), user=ALICE)
    await world.refused(STATUS, allocated, admitted_claim("c"), user=ALICE, verb="patch")
    await world.admit(STATUS, allocated, allocated, user=User("nobody"))


async def test_the_right_to_bind_in_one_namespace_is_not_enough(world: World) -> None:
    await world.put("Role", "binder", "ns", rules=[rule(["*"], "*")])
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "binder"}
    await world.put("RoleBinding", "b", "ns", subjects=[{"kind": "User", "name": "alice"}], roleRef=reference)
    await world.refused(STATUS, admitted_claim("c", allocation=ON_N1), admitted_claim("c"), user=ALICE)


def driver(node: str = "n1", *more: str) -> User:
    return User("system:serviceaccount:drivers:gpu", (), "", {"authentication.kubernetes.io/node-name": (node, *more)})


async def test_a_driver_reports_on_its_own_node(world: World) -> None:
    allocated, reported = (
        admitted_claim("c", allocation=ON_N1),
        admitted_claim("c", allocation=ON_N1, devices=[DEVICE_STATUS]),
    )
    own = rule(["associated-node:update"], "resourceclaims/driver", names=("gpu.example.com",))
    await grant(world, driver(), own)
    await world.admit(STATUS, reported, allocated, user=driver())
    await world.admit(STATUS, allocated, reported, user=driver())
    for user in (driver("n2"), driver("n1", "n2"), User(driver().name), driver("Not A Node")):
        error = await world.refused(STATUS, reported, allocated, user=user)
        assert (
            'status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", '
            'verb="[associated-node:update arbitrary-node:update]" permission: ' in error.message
        )
    await world.refused(STATUS, reported, allocated, user=driver(), verb="patch")
    other = copy.deepcopy(reported)
    other["status"]["devices"][0]["driver"] = "nic.example.com"
    await world.refused(STATUS, other, allocated, user=driver())
    everywhere = copy.deepcopy(allocated)
    everywhere["status"]["allocation"].pop("nodeSelector")
    reported_everywhere = copy.deepcopy(reported)
    reported_everywhere["status"]["allocation"].pop("nodeSelector")
    await world.refused(STATUS, reported_everywhere, everywhere, user=driver())
    await grant(world, driver(), rule(["arbitrary-node:update"], "resourceclaims/driver", names=("gpu.example.com",)))
    await world.admit(STATUS, reported_everywhere, everywhere, user=driver())


async def test_device_status_goes_with_its_allocation(world: World) -> None:
    reported = admitted_claim("c", allocation=ON_N1, devices=[DEVICE_STATUS])
    await grant(world, ALICE, rule(["update"], "resourceclaims/binding"))
    await world.admit(STATUS, admitted_claim("c"), reported, user=ALICE)
