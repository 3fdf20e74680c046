"""Attributes of devices in containers of a whole node: where the agent reads them, and what it keeps."""

from dray.client import SLICES, Client
from tests.builders.manifests import a_device, a_slice
from tests.kubelet.node_rig import COLOUR, FAN, NODE, NodeRig

RIG = NodeRig


class NotesCalls:
    """Passes calls on and notes method, resource and field selector of each."""

    def __init__(self, inner):
        self._inner = inner
        self.calls = set()
        self.watches = set()
        self.deletes = set()

    async def request(self, call):
        self.calls.add((call.method, _resource(call)))
        if call.method == "DELETE":
            self.deletes.add((_resource(call), call.query.get("fieldSelector", "")))
        return await self._inner.request(call)

    def stream(self, call):
        self.watches.add((_resource(call), call.query.get("fieldSelector", "")))
        return self._inner.stream(call)

    async def close(self):
        pass


def _resource(call):
    return next((each for each in ("resourceslices", "resourceclaims", "pods") if each in call.path), call.path)


async def test_an_agent_watches_pods_and_slices_of_its_node_and_writes_no_slice(rig):
    await rig.stop_agent()
    transport = NotesCalls(rig.plane.client("kubelet").transport)
    await rig.start_agent(Client(transport))
    await rig.create_pod()
    await rig.until_output(0, "colour=white")
    await rig.delete_pod()
    watched = {
        (resource, selector) for resource, selector in transport.watches if resource in {"pods", "resourceslices"}
    }
    assert watched == {("pods", f"spec.nodeName={NODE}"), ("resourceslices", f"spec.nodeName={NODE}")}
    assert {method for method, resource in transport.calls if resource == "resourceslices"} <= {"GET", "DELETE"}
    deleted = {selector for resource, selector in transport.deletes if resource == "resourceslices"}
    assert deleted == {f"spec.nodeName={NODE}"}, "those of an earlier life, when the agent starts"
    assert ("GET", "resourceclaims") in transport.calls
    assert not {resource for resource, _ in transport.watches} & {"resourceclaims"}


async def test_the_newest_generation_of_a_pool_has_the_attribute(rig):
    await rig.create_pod()
    await rig.until_output(0, "colour=white")
    await rig.stop_driver()
    for name, generation, colour in (("newer", 9, "red"), ("older", 8, "blue")):
        device = a_device("fan-0", attributes={"colour": colour})
        await rig.client.create(SLICES, a_slice(name, device, node=NODE, driver=FAN, generation=generation))
    # A watch is in the order of writes: who sees this one has seen the others.
    await rig.client.create(SLICES, a_slice("last", "x", node=NODE, pool="last", driver=FAN))
    await rig.until(lambda: rig.agent.find_device(FAN, "last", "x") is not None, "the agent to see the slices")
    rig.kill_containers()
    await rig.until_output(1, "colour=red")


async def test_init_containers_and_sidecars_see_device_and_attributes_too(rig):
    """All containers of the pod use one claim."""
    env = [{"name": "COLOUR", "valueFrom": {"resourceSliceAttributeRef": COLOUR}}]
    claims = {"claims": [{"name": "fan"}]}
    base = {"image": "i", "env": env, "resources": claims}
    before = {**base, "name": "before", "command": ["sh", "-c", "echo before=$COLOUR $FAN"]}
    beside = {
        **base,
        "name": "beside",
        "restartPolicy": "Always",
        "command": ["sh", "-c", "echo beside=$COLOUR $FAN; exec sleep 1000"],
    }
    await rig.create_pod(initContainers=[before, beside])
    await rig.until_output(0, "fan=fan-0 colour=white")
    written = {path.parent.name: path.read_text() for path in (rig.root / "n" / "logs").glob("default_p_*/*/0.log")}
    assert written["before"] == "before=white fan-0\n"
    assert written["beside"] == "beside=white fan-0\n"
    assert len(rig.fan.prepared) == 1


async def test_a_pod_with_two_claims_sees_the_attributes_of_both(rig):
    names = ("fan", "other")
    container = {
        "name": "main",
        "image": "i",
        "command": ["sh", "-c", "echo places=$FAN_PLACE,$OTHER_PLACE; exec sleep 1000"],
        "env": [
            {
                "name": f"{name.upper()}_PLACE",
                "valueFrom": {"resourceSliceAttributeRef": COLOUR | {"claimName": name, "attribute": "place"}},
            }
            for name in names
        ],
        "resources": {"claims": [{"name": name} for name in names]},
    }
    entries = [{"name": name, "resourceClaimTemplateName": "fan"} for name in names]
    await rig.create_pod(containers=[container], resourceClaims=entries)
    await rig.until_output(0, "places=0,1")


async def test_what_is_kept_of_claims_goes_with_their_pods(rig):
    for name in ("a", "b"):
        await rig.create_pod(name)
        await rig.until_phase("Running", name)
    assert len([each for each in rig.agent.claims.cache if each.claim]) == 2
    for name in ("a", "b"):
        await rig.delete_pod(name)
    assert list(rig.agent.claims.cache) == []
