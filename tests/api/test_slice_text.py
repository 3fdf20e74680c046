"""Slices of equal nodes: the long lists are read once, and the slice is the same as if it had been read whole."""

import msgspec
import pytest

from dray.api import codec
from dray.api.caching import SharedDecoder
from dray.api.resource import ResourceSlice
from dray.api.slice_text import SliceText, read_devices
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
