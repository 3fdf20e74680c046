"""Indexes agree with looking at every object, whatever happens to the objects."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.core import Pod, PodSpec
from dray.api.meta import ObjectMeta
from dray.client import IndexedObjects, KeysByValue, object_key

STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "index"]), st.integers(0, 4), st.sampled_from(["", "a", "b"])),
    max_size=40,
)


def by_node(pod):
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def by_letters(pod):
    return set(pod.metadata.name)


@settings(deadline=None)
@given(STEPS)
def test_indexes_follow_every_step(steps):
    objects = IndexedObjects({"node": by_node})
    truth = {}
    for step, number, node in steps:
        pod = Pod(metadata=ObjectMeta(namespace="ns", name=f"p{number}"), spec=PodSpec(node_name=node))
        if step == "put":
            assert objects.put(pod) == truth.get(object_key(pod))
            truth[object_key(pod)] = pod
        elif step == "remove":
            assert objects.remove(object_key(pod)) == truth.pop(object_key(pod), None)
        else:
            objects.add_indexer("letters", by_letters)
        for name, indexer in objects.indexers.items():
            for value in ("a", "b", "p", "0", "3", "absent"):
                expected = [item.metadata.name for item in truth.values() if value in indexer(item)]
                assert sorted(item.metadata.name for item in objects.by_index(name, value)) == sorted(expected)
            assert all(objects.by_index(name, value) for value in objects.index_values(name))
    assert len(objects) == len(truth)
    assert {object_key(item) for item in objects} == set(truth)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from("xy"), st.tuples(st.integers(0, 2))), max_size=30))
def test_sets_of_keys_keep_the_order_of_arrival(steps):
    keys, truth = KeysByValue(), {"x": [], "y": []}
    for adds, value, key in steps:
        if adds:
            keys.add(value, key)
            truth[value] += [key] if key not in truth[value] else []
        else:
            keys.discard(value, key)
            truth[value] = [each for each in truth[value] if each != key]
        assert {value: list(keys[value]) for value in "xy"} == truth
        assert set(keys) == {value for value in "xy" if truth[value]}
