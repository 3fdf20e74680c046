"""Slices of equal nodes: the long lists are read once, and the slice is the same as if it had been read whole."""

import msgspec
import pytest

from dray.api import codec
from dray.api.caching import SharedDecoder
from dray.api.resource import ResourceSlice
from dray.api.slice_text import DeviceTexts, DeviceTrees, SliceText, learn, read_devices, read_tree, split
from dray.client import SLICES
from dray.client.kinds import WatchEvent, decode_page, event_decoder
from dray.driver.example import DRIVERS
from dray.driver.slices import Publisher, plan_pool


def slices_of(name, node):
    driver = DRIVERS[name]()
    return [each for pool in driver.pools(node) for each in plan_pool(Publisher(driver.name, node), pool, ()).creates]


def read(text):
    return msgspec.json.decode(text, type=SliceText).whole()


@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_a_slice_is_the_same_as_when_read_whole(name):
    for each in slices_of(name, "node-1"):
        text = codec.encode(each)
        assert read(text) == codec.decode(ResourceSlice, text) == each


def test_equal_lists_are_one_value_and_read_once():
    read_before = read_devices.reads
    here, there = ([read(codec.encode(each)) for each in slices_of("nic", node)] for node in ("here", "there"))
    assert here[0].spec.node_name == "here"
    assert there[0].spec.node_name == "there"
    assert here[0].spec.devices is there[0].spec.devices
    assert read_devices.reads <= read_before + 1


@pytest.mark.parametrize("spec", ["", '"spec":{},', '"spec":{"driver":"d","pool":{"name":"p"},"allNodes":true},'])
def test_what_is_left_out_has_its_default(spec):
    text = f'{{{spec}"kind":"ResourceSlice","apiVersion":"resource.k8s.io/v1","metadata":{{"name":"s"}}}}'.encode()
    assert read(text) == codec.decode(ResourceSlice, text)


@pytest.mark.parametrize("devices", ["null", '{"name":"a"}', '[{"name":"a","capacity":{"m":{"value":"lots"}}}]'])
def test_a_list_that_cannot_be_read_is_an_error_and_is_not_remembered(devices):
    text = f'{{"kind":"ResourceSlice","spec":{{"devices":{devices}}}}}'.encode()
    for _ in range(2):
        with pytest.raises(msgspec.ValidationError):
            read(text)


def test_the_memory_is_bounded_by_the_length_of_the_texts():
    lengths = SharedDecoder(len, most_bytes=10)
    assert [lengths(text) for text in (b"aaaa", b"bbbb", b"aaaa", b"cccc")] == [4, 4, 4, 4]
    assert (lengths.reads, len(lengths)) == (3, 2)
    assert lengths(b"aaaa") == 4
    assert lengths.reads == 3
    assert lengths(b"bbbb") == 4
    assert lengths.reads == 4


def test_a_text_longer_than_the_memory_is_read_each_time():
    lengths = SharedDecoder(len, most_bytes=3)
    assert lengths(b"aaaa") == lengths(b"aaaa") == 4
    assert (lengths.reads, len(lengths)) == (2, 0)


def long_list(*names):
    return [{"name": name, "attributes": {"model": {"string": "m" * 100}}} for name in names or map(str, range(20))]


def slice_json(devices, **metadata):
    return {"kind": "ResourceSlice", "metadata": {"name": "s", **metadata}, "spec": {"driver": "d", "devices": devices}}


def texts_of(documents):
    return [msgspec.json.encode(each) for each in documents]


def test_a_known_list_is_cut_out_of_any_slice_that_has_it():
    one, other = texts_of(slice_json(long_list(), uid=uid) for uid in ("1", "2"))
    first, second = learn(one), split(other)
    assert b"".join(first) == one
    assert b"".join(second) == other
    assert first.devices is second.devices
    assert read_tree(second) == msgspec.json.decode(other)
    assert read_tree(first)["spec"]["devices"] is read_tree(second)["spec"]["devices"]


TRICKS = {
    "the key and a list in an annotation": lambda text: slice_json(
        long_list("x"), annotations={"a": f'"devices":{text}', 'b"devices': text}
    ),
    "another list of the same beginning": lambda text: slice_json([*msgspec.json.decode(text), {"name": "one more"}]),
    "the stand-in as a value": lambda text: slice_json(msgspec.json.decode(text), labels={"a": "a list of devices"}),
    "the list in another place": lambda text: {"metadata": {"devices": msgspec.json.decode(text)}, "spec": {}},
    "no spec": lambda text: {"devices": msgspec.json.decode(text)},
    "the list twice": lambda text: {"devices": msgspec.json.decode(text), **slice_json(msgspec.json.decode(text))},
}


@pytest.mark.parametrize("trick", TRICKS)
def test_no_text_is_read_as_another(trick):
    known = learn(msgspec.json.encode(slice_json(long_list())))
    text = msgspec.json.encode(TRICKS[trick](known.devices.decode()))
    found = learn(text)
    assert found is None or b"".join(found) == text
    assert found is None or read_tree(found) in (None, msgspec.json.decode(text))
    event = b'{"type":"ADDED","object":%b}' % text
    whole = msgspec.json.decode(event, type=WatchEvent[SliceText])
    assert event_decoder(SLICES)(event).object == whole.object.whole()


@pytest.mark.parametrize("text", ['{"spec":{"driver":"d","driver":"e","devices":%s}}', '{"spec": {"devices":%s}}'])
def test_a_text_that_is_not_compact_or_names_a_field_twice_is_read_whole(text):
    known = learn(msgspec.json.encode(slice_json(long_list())))
    found = learn((text % known.devices.decode()).encode())
    assert found is not None
    assert read_tree(found) is None


def test_a_list_that_names_a_field_twice_is_never_shared():
    devices = msgspec.json.encode(long_list()).replace(b'{"name":"0"', b'{"name":"9","name":"0"')
    found = learn(b'{"spec":{"devices":%b}}' % devices)
    assert found is not None
    assert read_tree(found) is None


def test_texts_and_trees_are_bounded():
    texts, trees = DeviceTexts(10_000), DeviceTrees(10_000)
    for number in range(20):
        text = msgspec.json.encode(long_list(*(f"{number}-{at}" for at in range(20))))
        tree = trees.read(texts.remember(text))
        assert trees.text_of(tree) is text
        assert trees.text_of(list(tree)) is None
    assert sum(map(len, texts._texts)) <= 10_000
    assert sum(map(len, trees._by_text)) <= 10_000
    assert len(trees._by_identity) == len(trees._by_text)


@pytest.mark.parametrize("trick", [None, *TRICKS])
def test_a_page_of_slices_is_the_same_as_when_each_is_read_alone(trick):
    known = learn(msgspec.json.encode(slice_json(long_list())))
    odd = TRICKS[trick](known.devices.decode()) if trick else slice_json([])
    items = [
        slice_json(long_list(), uid="1"),
        odd,
        slice_json(long_list("y"), uid="2"),
        slice_json(long_list(), uid="3"),
    ]
    page = decode_page(SLICES, msgspec.json.encode({"metadata": {"resourceVersion": "7"}, "items": items}))
    assert page.metadata.resource_version == "7"
    assert page.items == [read(msgspec.json.encode(each)) for each in items]
    assert page.items[0].spec.devices is page.items[3].spec.devices
