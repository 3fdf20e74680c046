"""Which nodes a pool of devices concerns."""

import pytest
from msgspec.structs import replace
from tests.builders.objects import a_slice

from dray.scheduler.devices import DeviceReach

POOL = ("gpu.example.com", "shared")


def reach_of(*nodes):
    reach = DeviceReach()
    for number, node in enumerate(nodes):
        published = a_slice(node or "anywhere", 1)
        spec = {"driver": POOL[0], "node_name": node}
        reach.set(with_pool(published, f"slice-{number}", spec))
    return reach.of_pool(POOL)


def with_pool(published, name, spec):
    pool = replace(published.spec.pool, name=POOL[1])
    return replace(
        published,
        metadata=replace(published.metadata, name=name),
        spec=replace(published.spec, pool=pool, **spec),
    )


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [((), set()), (("a",), {"a"}), ((None,), None), (("a", "b"), {"a", "b"}), (("a", None), None), (("a", "a"), {"a"})],
)
def test_a_pool_concerns_the_nodes_of_its_slices_or_every_node(nodes, expected):
    assert reach_of(*nodes) == expected
