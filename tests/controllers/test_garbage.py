"""Garbage collection: background, foreground, orphan, and owners that are not what they seem."""

import pytest

from dray.client import CLAIMS, CONFIG_MAPS, NODES, PODS, SLICES
from dray.controllers.discovery import discover
from dray.controllers.garbage_collector import GarbageCollector
from tests.controllers.builders import node_with_ready, ns_claim, ns_pod, pool_slice

pytestmark = pytest.mark.usefixtures("cluster")


def a_map(name, *owners, block=False, **metadata):
    references = [
        {"apiVersion": "v1", "kind": kind, "name": owner, "uid": uid, **({"blockOwnerDeletion": True} if block else {})}
        for kind, owner, uid in owners
    ]
    metadata |= {"name": name, "namespace": "ns", "ownerReferences": references}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def of(obj, kind="ConfigMap"):
    return kind, obj.metadata.name, obj.metadata.uid


@pytest.fixture
async def collector(cluster):
    kinds = await discover(cluster.client)
    return await cluster.start(lambda context: GarbageCollector(context, kinds))


async def gone(cluster, kind, name, namespace="ns"):
    async def look():
        return await cluster.client.find(kind, name, namespace) is None

    await cluster.eventually(look)


async def make(cluster, name, *owners, **fields):
    return await cluster.client.create(CONFIG_MAPS, a_map(name, *owners, **fields))


async def test_every_kind_is_found_once(cluster):
    kinds = await discover(cluster.client)
    names = [kind.plural for kind in kinds]
    assert len(names) == len(set(names))
    assert {"pods", "resourceclaims.resource.k8s.io", "nodes", "jobs.batch"} <= set(names)
    assert not any("events" in name or "review" in name for name in names)


async def test_a_dependent_goes_with_its_only_owner(cluster, collector):
    owner = await make(cluster, "owner")
    await make(cluster, "dependent", of(owner))
    await make(cluster, "bystander")
    await cluster.client.delete(CONFIG_MAPS, "owner", "ns")
    await gone(cluster, CONFIG_MAPS, "dependent")
    assert await cluster.client.find(CONFIG_MAPS, "bystander", "ns")


async def test_chains_go_link_by_link(cluster, collector):
    owner = await make(cluster, "a")
    for name in ("b", "c", "d"):
        owner = await make(cluster, name, of(owner))
    await cluster.client.delete(CONFIG_MAPS, "a", "ns")
    await gone(cluster, CONFIG_MAPS, "d")


async def test_M4_generated_claims_go_with_their_pod_and_slices_with_their_node(cluster, collector):
    pod = await cluster.client.create(PODS, ns_pod())
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": pod.metadata.uid, "controller": True}
    await cluster.client.create(CLAIMS, ns_claim(ownerReferences=[owner]))
    node = await cluster.client.create(NODES, node_with_ready())
    resource_slice = pool_slice()
    resource_slice["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": "node", "uid": node.metadata.uid}
    ]
    await cluster.client.create(SLICES, resource_slice)
    await cluster.client.delete(PODS, "pod", "ns", grace_seconds=0)
    await cluster.client.delete(NODES, "node")
    await gone(cluster, CLAIMS, "claim")
    await gone(cluster, SLICES, "slice", "")


async def test_an_owner_that_was_gone_before_we_looked(cluster):
    owner = await make(cluster, "owner")
    await make(cluster, "dependent", of(owner))
    await cluster.client.delete(CONFIG_MAPS, "owner", "ns")
    kinds = await discover(cluster.client)
    await cluster.start(lambda context: GarbageCollector(context, kinds))
    await gone(cluster, CONFIG_MAPS, "dependent")


async def test_an_owner_of_the_same_name_with_another_uid_is_no_owner(cluster, collector):
    owner = await make(cluster, "owner")
    await make(cluster, "wrong", ("ConfigMap", "owner", "another-uid"))
    await make(cluster, "right", of(owner))
    await gone(cluster, CONFIG_MAPS, "wrong")
    assert await cluster.client.find(CONFIG_MAPS, "right", "ns")


async def test_an_owner_that_our_watch_has_not_shown_is_asked_for(cluster, collector):
    cluster.wire.hold(NODES)
    node = await cluster.client.create(NODES, node_with_ready())
    await make(cluster, "dependent", of(node, "Node"))

    async def asked():
        return cluster.wire.count("GET", "/nodes/node$")

    await cluster.eventually(asked)
    await cluster.quiet()
    assert await cluster.client.find(CONFIG_MAPS, "dependent", "ns")
    cluster.wire.release(NODES)


async def test_one_of_two_owners_left_keeps_the_dependent_and_drops_the_reference(cluster, collector):
    one, two = await make(cluster, "one"), await make(cluster, "two")
    await make(cluster, "dependent", of(one), of(two))
    await cluster.client.delete(CONFIG_MAPS, "one", "ns")

    async def owners():
        found = await cluster.client.get(CONFIG_MAPS, "dependent", "ns")
        return [reference.name for reference in found.metadata.owner_references] == ["two"]

    await cluster.eventually(owners)


async def test_owners_of_unknown_kinds_keep_their_dependents(cluster, collector):
    document = a_map("dependent", ("Gadget", "g", "u"))
    document["metadata"]["ownerReferences"][0]["apiVersion"] = "example.com/v1"
    await cluster.client.create(CONFIG_MAPS, document)
    await cluster.quiet()
    assert await cluster.client.find(CONFIG_MAPS, "dependent", "ns")


async def test_orphans_lose_the_reference_and_stay(cluster, collector):
    owner = await make(cluster, "owner")
    await make(cluster, "dependent", of(owner))
    await cluster.quiet()
    await cluster.client.delete(CONFIG_MAPS, "owner", "ns", propagation="Orphan")
    await gone(cluster, CONFIG_MAPS, "owner")
    assert (await cluster.client.get(CONFIG_MAPS, "dependent", "ns")).metadata.owner_references == ()


async def test_foreground_deletion_waits_for_blocking_dependents(cluster, collector):
    owner = await make(cluster, "owner")
    await make(cluster, "blocking", of(owner), block=True, finalizers=["example.com/slow"])
    await make(cluster, "loose", of(owner))
    await cluster.quiet()
    await cluster.client.delete(CONFIG_MAPS, "owner", "ns", propagation="Foreground")
    await gone(cluster, CONFIG_MAPS, "loose")
    await cluster.quiet()
    blocking = await cluster.client.get(CONFIG_MAPS, "blocking", "ns")
    assert blocking.metadata.deletion_timestamp
    assert await cluster.client.find(CONFIG_MAPS, "owner", "ns")
    await cluster.client.patch(CONFIG_MAPS, "blocking", {"metadata": {"finalizers": []}}, "ns")
    await gone(cluster, CONFIG_MAPS, "owner")


async def test_foreground_deletion_goes_down_the_chain(cluster, collector):
    top = await make(cluster, "top")
    middle = await make(cluster, "middle", of(top), block=True)
    await make(cluster, "bottom", of(middle), block=True)
    await cluster.quiet()
    await cluster.client.delete(CONFIG_MAPS, "top", "ns", propagation="Foreground")
    for name in ("bottom", "middle", "top"):
        await gone(cluster, CONFIG_MAPS, name)


@pytest.fixture
async def elsewhere(cluster):
    """Makes ConfigMaps in another namespace, with owners that are in this one."""
    await cluster.namespace("elsewhere")

    async def make(name, *owners, **fields):
        document = a_map(name, *owners, **fields)
        document["metadata"]["namespace"] = "elsewhere"
        return await cluster.client.create(CONFIG_MAPS, document)

    return make


@pytest.mark.parametrize("wrong", ["name", "kind", "namespace"])
async def test_a_wrong_reference_does_not_make_an_owner_of_others_absent(cluster, collector, elsewhere, wrong):
    """Whoever knows a UID writes it into an object of their own, which has the collector look for it in the wrong place."""
    ended, owner = await make(cluster, "ended"), await make(cluster, "owner")
    kind, name = "Secret" if wrong == "kind" else "ConfigMap", "no-such" if wrong == "name" else "owner"
    await elsewhere("wrong", (kind, name, owner.metadata.uid))
    await gone(cluster, CONFIG_MAPS, "wrong", "elsewhere")
    await make(cluster, "dependent", of(ended), of(owner))
    await cluster.client.delete(CONFIG_MAPS, "ended", "ns")

    async def looked():
        found = await cluster.client.find(CONFIG_MAPS, "dependent", "ns")
        return found is None or len(found.metadata.owner_references) == 1

    await cluster.eventually(looked)
    assert await cluster.client.find(CONFIG_MAPS, "dependent", "ns")


async def test_a_wrong_reference_does_not_end_dependents_of_kinds_that_nobody_watches(cluster, collector, elsewhere):
    uid = "0b0ab0fc-0000-4000-8000-000000000001"
    await elsewhere("wrong", ("ConfigMap", "no-such", uid))
    await gone(cluster, CONFIG_MAPS, "wrong", "elsewhere")
    document = a_map("dependent", ("Gadget", "g", uid))
    document["metadata"]["ownerReferences"][0]["apiVersion"] = "example.com/v1"
    await cluster.client.create(CONFIG_MAPS, document)
    await make(cluster, "later", ("ConfigMap", "no-such", "another"))
    await gone(cluster, CONFIG_MAPS, "later")
    await cluster.quiet()
    assert await cluster.client.find(CONFIG_MAPS, "dependent", "ns")


async def test_foreground_deletion_does_not_wait_for_objects_of_other_namespaces(cluster, collector, elsewhere):
    owner = await make(cluster, "owner")
    await elsewhere("blocking", of(owner), block=True, finalizers=["example.com/for-ever"])
    await cluster.quiet()
    await cluster.client.delete(CONFIG_MAPS, "owner", "ns", propagation="Foreground")
    await gone(cluster, CONFIG_MAPS, "owner")
    await cluster.client.patch(CONFIG_MAPS, "blocking", {"metadata": {"finalizers": []}}, "elsewhere")


async def test_long_references_are_not_remembered(cluster, collector):
    await make(cluster, "dependent", ("ConfigMap", "owner", "u" * 10_000))
    await gone(cluster, CONFIG_MAPS, "dependent")
    assert len(str(list(collector._absent))) < 10_000


async def test_objects_that_own_each_other_do_not_wait_for_ever(cluster, collector):
    one = await make(cluster, "one")
    two = await make(cluster, "two", of(one), block=True)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "two", "uid": two.metadata.uid}
    patch = {"metadata": {"ownerReferences": [reference | {"blockOwnerDeletion": True}]}}
    await cluster.client.patch(CONFIG_MAPS, "one", patch, "ns")
    await cluster.quiet()
    await cluster.client.delete(CONFIG_MAPS, "one", "ns", propagation="Foreground")
    await gone(cluster, CONFIG_MAPS, "one")
    await gone(cluster, CONFIG_MAPS, "two")


async def test_an_owner_added_at_the_last_moment_saves_the_dependent(cluster, collector):
    old, new = await make(cluster, "old"), await make(cluster, "new")
    await make(cluster, "dependent", of(old))
    await cluster.quiet()

    async def adopt():
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "new", "uid": new.metadata.uid}
        await cluster.client.patch(CONFIG_MAPS, "dependent", {"metadata": {"ownerReferences": [reference]}}, "ns")

    cluster.wire.before("DELETE", "/configmaps/dependent$", adopt)
    await cluster.client.delete(CONFIG_MAPS, "old", "ns")

    async def tried():
        return cluster.wire.count("DELETE", "/configmaps/dependent$")

    await cluster.eventually(tried)
    await cluster.quiet()
    assert await cluster.client.find(CONFIG_MAPS, "dependent", "ns")


async def test_a_server_that_fails_is_asked_again(cluster, collector):
    from dray.client import ApiError

    owner = await make(cluster, "owner")
    await make(cluster, "dependent", of(owner))
    await cluster.quiet()
    cluster.wire.fail("DELETE", "/configmaps/dependent$", ApiError(500, "InternalError", "x"), times=2)
    await cluster.client.delete(CONFIG_MAPS, "owner", "ns")
    await gone(cluster, CONFIG_MAPS, "dependent")
