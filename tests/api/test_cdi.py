"""CDI specs, names and edits."""

import pytest

from dray.api.cdi import (
    CdiDevice,
    CdiError,
    CdiSpec,
    ContainerEdits,
    DeviceNode,
    Hook,
    Mount,
    NetDevice,
    check_spec,
    decode_spec,
    make_registry,
    make_spec,
    merge_edits,
    qualified_name,
    split_qualified_name,
)

SOME = ContainerEdits(env=("A=1",))


@pytest.mark.parametrize("name", ["gpu.example.com/gpu=gpu-0", "v/c=0", "v/c=a:b.c_d", "a-b/c.d=x"])
def test_valid_names_split_and_join(name):
    kind, device = split_qualified_name(name)
    assert qualified_name(kind, device) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a=b",
        "a/b",
        "/c=d",
        "1v/c=d",
        "v/c=",
        "v/c=-x",
        "v/c=x-",
        "v/../c=x",
        "v/c=../../etc",
        "v/c=a/b",
        "v-/c=d",
        "v/c=ü",
    ],
)
def test_bad_names_are_refused(name):
    with pytest.raises(CdiError):
        split_qualified_name(name)


@pytest.mark.parametrize(
    ("kind", "device", "edits", "version"),
    [
        pytest.param("v/c", "x", SOME, "0.3.0", id="base"),
        pytest.param(
            "v/c",
            "x",
            ContainerEdits(mounts=(Mount(host_path="/a", container_path="/b", type="bind"),)),
            "0.4.0",
            id="mount-type",
        ),
        pytest.param("v/c", "0", SOME, "0.5.0", id="name-starts-with-digit"),
        pytest.param(
            "v/c",
            "x",
            ContainerEdits(device_nodes=(DeviceNode(path="/dev/a", host_path="/dev/b"),)),
            "0.5.0",
            id="host-path",
        ),
        pytest.param("v/c.d", "x", SOME, "0.6.0", id="dot-in-class"),
        pytest.param("v/c", "x", ContainerEdits(additional_gids=(5,)), "0.7.0", id="gids"),
        pytest.param(
            "v/c",
            "x",
            ContainerEdits(net_devices=(NetDevice(host_interface_name="a", name="b"),)),
            "1.1.0",
            id="net-devices",
        ),
    ],
)
def test_specs_are_written_at_their_minimum_version(kind, device, edits, version):
    assert make_spec(kind, [CdiDevice(name=device, container_edits=edits)]).cdi_version == version


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (CdiSpec(cdi_version="0.3.0", kind="v/c"), "at least one device"),
        (CdiSpec(cdi_version="0.3.0", kind="v/c", devices=(CdiDevice(name="x"),)), "must not be empty"),
        (CdiSpec(cdi_version="0.3.0", kind="v/c", devices=(CdiDevice(name="0", container_edits=SOME),)), "too old"),
        (
            CdiSpec(cdi_version="x", kind="v/c", devices=(CdiDevice(name="x", container_edits=SOME),)),
            "MAJOR.MINOR.PATCH",
        ),
        (CdiSpec(cdi_version="0.3.0", kind="vc", devices=(CdiDevice(name="x", container_edits=SOME),)), "vendor/class"),
        (
            CdiSpec(
                cdi_version="0.3.0",
                kind="v/c",
                devices=(CdiDevice(name="x", container_edits=ContainerEdits(env=("A",))),),
            ),
            "KEY=VALUE",
        ),
        (
            CdiSpec(
                cdi_version="0.3.0",
                kind="v/c",
                devices=(
                    CdiDevice(name="x", container_edits=ContainerEdits(hooks=(Hook(hook_name="now", path="/a"),))),
                ),
            ),
            "must be one of",
        ),
        (
            CdiSpec(
                cdi_version="0.3.0",
                kind="v/c",
                devices=(
                    CdiDevice(name="x", container_edits=ContainerEdits(hooks=(Hook(hook_name="poststop", path="a"),))),
                ),
            ),
            "absolute",
        ),
    ],
)
def test_bad_specs_say_what_is_wrong(spec, message):
    with pytest.raises(CdiError, match=message):
        check_spec(spec)


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"cdiVersion":"0.3.0","kind":"v/c","devices":[],"more":1}', b"\xff"])
def test_files_that_are_no_specs_are_refused(text):
    with pytest.raises(CdiError):
        decode_spec(text)


def test_common_edits_come_once_and_before_the_first_device():
    spec = make_spec(
        "v/c",
        [
            CdiDevice(name="a", container_edits=ContainerEdits(env=("X=a",))),
            CdiDevice(name="b", container_edits=ContainerEdits(env=("X=b",))),
        ],
        ContainerEdits(env=("X=common", "Y=common"), additional_gids=(7,)),
    )
    edits = make_registry([[spec]]).edits_for(["v/c=a", "v/c=b"])
    assert edits.env == ("X=b", "Y=common")
    assert edits.additional_gids == (7,)


def test_a_later_directory_has_priority_and_a_tie_is_a_conflict():
    low = make_spec("v/c", [CdiDevice(name="a", container_edits=ContainerEdits(env=("X=low",)))])
    high = make_spec("v/c", [CdiDevice(name="a", container_edits=ContainerEdits(env=("X=high",)))])
    assert make_registry([[low], [high]]).edits_for(["v/c=a"]).env == ("X=high",)
    with pytest.raises(CdiError, match="unresolvable CDI devices v/c=a"):
        make_registry([[low, high]]).edits_for(["v/c=a"])


def test_unknown_devices_are_all_named():
    with pytest.raises(CdiError, match="unresolvable CDI devices v/c=a, v/c=b"):
        make_registry([]).edits_for(["v/c=a", "v/c=b"])


def test_later_nodes_and_mounts_replace_those_of_the_same_path():
    merged = merge_edits(
        [
            ContainerEdits(
                device_nodes=(DeviceNode(path="/dev/x", major=1),), mounts=(Mount(host_path="/1", container_path="/m"),)
            ),
            ContainerEdits(
                device_nodes=(DeviceNode(path="/dev/x", major=2),), mounts=(Mount(host_path="/2", container_path="/m"),)
            ),
        ]
    )
    assert [node.major for node in merged.device_nodes] == [2]
    assert [mount.host_path for mount in merged.mounts] == ["/2"]
