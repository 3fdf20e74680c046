"""Environment variables: every kind of source, and what happens when it is not there."""

import pytest

from dray.api.codec import to_object
from dray.api.core import (
    Container,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    KeySelector,
    ObjectFieldSelector,
    Pod,
    PodSpec,
    ResourceFieldSelector,
    ResourceRequirements,
    ResourceSliceAttributeSelector,
)
from dray.api.meta import ObjectMeta
from dray.api.quantity import Quantity
from dray.api.resource import (
    Device,
    DeviceAttribute,
    ResourceClaim,
)
from dray.kubelet.environment import EnvironmentSources, container_environment, expand
from dray.kubelet.errors import ContainerError
from tests.builders.manifests import a_claim, a_result

POD = Pod(
    metadata=ObjectMeta(name="p", namespace="ns", uid="u", labels={"app": "x"}, annotations={"note": "y"}),
    spec=PodSpec(node_name="n"),
)
DEVICES = {
    "gpu-0": Device(
        name="gpu-0",
        attributes={
            "uuid": DeviceAttribute(string="a"),
            "gpu.example.com/n": DeviceAttribute(int_=0),
            "ok": DeviceAttribute(bool_=False),
            "firmware": DeviceAttribute(version="1.2.3"),
            "resource.kubernetes.io/pcieRoot": DeviceAttribute(string="pci0000:01"),
        },
    ),
    "gpu-1": Device(
        name="gpu-1",
        attributes={
            "uuid": DeviceAttribute(string="b"),
            "gpu.example.com/n": DeviceAttribute(int_=1),
            "list": DeviceAttribute(strings=("x", "y")),
        },
    ),
}


def claim_of(*devices, request="r"):
    return to_object(a_claim(results=[a_result(device, request, pool="n") for device in devices]), ResourceClaim)


def environment(*variables, sources=None, resources=None, env_from=()):
    container = Container(name="c", env=variables, env_from=env_from, resources=resources or ResourceRequirements())
    return container_environment(POD, container, sources or EnvironmentSources())


def attribute(name, claim="gpus", request="r"):
    reference = ResourceSliceAttributeSelector(claim_name=claim, request_name=request, attribute=name)
    return EnvVar(name="X", value_from=EnvVarSource(resource_slice_attribute_ref=reference))


def with_claim(claim, **fields):
    return EnvironmentSources(
        claims={"gpus": claim}, find_device=lambda driver, pool, name: DEVICES.get(name), **fields
    )


def test_values_refer_to_earlier_ones():
    assert environment(EnvVar(name="A", value="1"), EnvVar(name="B", value="$(A)-$$(A)-$(NO)")) == {
        "A": "1",
        "B": "1-$(A)-$(NO)",
    }
    assert expand("$(A", {"A": "1"}) == "$(A"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("spec.nodeName", "n"),
        ("metadata.labels['app']", "x"),
        ("metadata.annotations['note']", "y"),
        ("metadata.labels['none']", ""),
        ("status.hostIP", "10.0.0.1"),
    ],
)
def test_fields_of_the_pod(path, value):
    variable = EnvVar(name="X", value_from=EnvVarSource(field_ref=ObjectFieldSelector(field_path=path)))
    assert environment(variable, sources=EnvironmentSources(host_ip="10.0.0.1")) == {"X": value}


def test_resources_of_the_container_are_divided_and_rounded_up():
    resources = ResourceRequirements(
        requests={"cpu": Quantity.parse("1500m")}, limits={"memory": Quantity.parse("1Gi")}
    )

    def of(resource, divisor=None):
        reference = ResourceFieldSelector(resource=resource, divisor=Quantity.parse(divisor) if divisor else None)
        variable = EnvVar(name="X", value_from=EnvVarSource(resource_field_ref=reference))
        return environment(
            variable, resources=resources, sources=EnvironmentSources(node_allocatable={"cpu": Quantity.parse(8)})
        )["X"]

    assert of("requests.cpu") == "2"
    assert of("requests.cpu", "1m") == "1500"
    assert of("limits.memory", "1Mi") == "1024"
    assert of("limits.cpu") == "8"


def test_config_maps_and_secrets():
    sources = EnvironmentSources(config_maps={"m": {"k": "v"}}, secrets={"s": {"t": "w"}})
    key = EnvVar(name="A", value_from=EnvVarSource(config_map_key_ref=KeySelector(name="m", key="k")))
    secret = EnvVar(name="B", value_from=EnvVarSource(secret_key_ref=KeySelector(name="s", key="t")))
    optional = EnvVar(
        name="C", value_from=EnvVarSource(secret_key_ref=KeySelector(name="none", key="t", optional=True))
    )
    all_of = EnvFromSource(prefix="P_", config_map_ref=KeySelector(name="m"))
    assert environment(key, secret, optional, sources=sources, env_from=(all_of,)) == {"P_k": "v", "A": "v", "B": "w"}


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        (
            EnvVar(name="A", value_from=EnvVarSource(config_map_key_ref=KeySelector(name="no", key="k"))),
            'configmap "no" not found',
        ),
        (
            EnvVar(name="A", value_from=EnvVarSource(config_map_key_ref=KeySelector(name="m", key="no"))),
            "couldn't find key no in configmap ns/m",
        ),
        (
            EnvVar(name="A", value_from=EnvVarSource(field_ref=ObjectFieldSelector(field_path="spec.containers"))),
            "cannot be used",
        ),
    ],
)
def test_missing_sources_are_named(variable, text):
    with pytest.raises(ContainerError, match=text) as caught:
        environment(variable, sources=EnvironmentSources(config_maps={"m": {}}))
    assert caught.value.reason == "CreateContainerConfigError"


@pytest.mark.parametrize(
    ("name", "devices", "value"),
    [
        ("uuid", ("gpu-1", "gpu-0"), "b,a"),
        ("gpu.example.com/uuid", ("gpu-0",), "a"),
        ("n", ("gpu-0", "gpu-1"), "0,1"),
        ("ok", ("gpu-0",), "false"),
        ("list", ("gpu-1",), "x,y"),
        ("firmware", ("gpu-0",), "1.2.3"),
        ("resource.kubernetes.io/pcieRoot", ("gpu-0",), "pci0000:01"),
    ],
)
def test_attributes_of_devices_come_in_the_order_of_the_allocation(name, devices, value):
    assert environment(attribute(name), sources=with_claim(claim_of(*devices)))["X"] == value


def test_a_chosen_alternative_is_found_under_its_request():
    assert environment(attribute("uuid"), sources=with_claim(claim_of("gpu-0", request="r/small")))["X"] == "a"


@pytest.mark.parametrize(
    ("variable", "claim", "text"),
    [
        (attribute("uuid"), ResourceClaim(), "claim gpus: not allocated"),
        (attribute("uuid", claim="other"), claim_of("gpu-0"), "claim other: not allocated"),
        (attribute("uuid", request="other"), claim_of("gpu-0"), "no devices are allocated for this request"),
        (attribute("uuid"), claim_of("gone"), "no ResourceSlice of this node has device gpu.example.com/n/gone"),
        (attribute("ok"), claim_of("gpu-0", "gpu-1"), "device gpu.example.com/n/gpu-1 has no attribute ok"),
        (attribute("other.com/uuid"), claim_of("gpu-0"), "has no attribute other.com/uuid"),
        (attribute("pcieRoot"), claim_of("gpu-0"), "has no attribute pcieRoot"),
    ],
)
def test_missing_attributes_fail_the_container(variable, claim, text):
    with pytest.raises(ContainerError, match=text):
        environment(variable, sources=with_claim(claim))


def test_the_gate_leaves_the_variable_out():
    assert environment(attribute("uuid"), sources=with_claim(claim_of("gpu-0"), device_attributes_enabled=False)) == {}


def test_variables_that_double_each_time_are_refused_before_they_fill_the_memory():
    doubling = [EnvVar(name="A0", value="x" * 64)]
    doubling += [EnvVar(name=f"A{i}", value=f"$(A{i - 1})$(A{i - 1})") for i in range(1, 60)]
    with pytest.raises(ContainerError, match="must not be longer than 2097152 characters"):
        environment(*doubling)
    with pytest.raises(ContainerError, match="must not be longer"):
        expand("$(A)" * 4096, {"A": "x" * 1024})
    assert len(expand("$(A)" * 2048, {"A": "x" * 1024})) == 2**21


def test_many_large_variables_are_refused_together():
    with pytest.raises(ContainerError, match="must not be longer"):
        environment(*(EnvVar(name=f"A{i}", value="x" * 2**19) for i in range(5)))
