"""Volume claims and ingresses get the default class; claims grow where their class says so."""

from typing import Any

import pytest
from tests.apiserver.admission.world import Document, World, meta

CLAIMS, INGRESSES = "persistentvolumeclaims", "networking.k8s.io:ingresses"
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}
DEFAULT_INGRESS = {"ingressclass.kubernetes.io/is-default-class": "true"}


def a_volume_claim(size: str = "1Gi", phase: str = "Bound", **spec: Any) -> Document:
    resources = {"requests": {"storage": size}}
    return {"metadata": meta("v"), "spec": {"resources": resources, **spec}, "status": {"phase": phase}}


async def put_class(world: World, kind: str, name: str, at: str, annotations: dict[str, str], **body: Any) -> None:
    time = f"2026-01-01T00:00:{at}Z"
    await world.put(kind, name, metadata={"annotations": annotations, "creationTimestamp": time}, **body)


async def test_a_volume_claim_gets_the_newest_default_class(world: World) -> None:
    made = await world.admit(CLAIMS, a_volume_claim())
    assert made is not None
    assert "storageClassName" not in made["spec"]
    await put_class(world, "StorageClass", "other", "09", {})
    for name, at in (("old", "01"), ("b", "02"), ("a", "02")):
        await put_class(world, "StorageClass", name, at, DEFAULT)
    made = await world.admit(CLAIMS, a_volume_claim())
    assert made is not None
    assert made["spec"]["storageClassName"] == "a"


async def test_a_volume_claim_keeps_the_class_it_has(world: World) -> None:
    await put_class(world, "StorageClass", "usual", "01", DEFAULT)
    for given in ("", "own"):
        made = await world.admit(CLAIMS, a_volume_claim(storageClassName=given))
        assert made is not None
        assert made["spec"]["storageClassName"] == given
    claim = a_volume_claim()
    claim["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": "own"}
    made = await world.admit(CLAIMS, claim)
    assert made is not None
    assert "storageClassName" not in made["spec"]


UNSUPPORTED = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
)


@pytest.mark.parametrize(
    ("storage_class", "phase", "why"),
    [
        ("grows", "Bound", ""),
        ("grows", "Pending", "Only bound persistent volume claims can be expanded"),
        ("fixed", "Bound", UNSUPPORTED),
        ("ghost", "Bound", UNSUPPORTED),
        ("", "Bound", UNSUPPORTED),
    ],
)
async def test_a_volume_claim_grows_where_its_class_says_so(
    world: World, storage_class: str, phase: str, why: str
) -> None:
    await world.put("StorageClass", "grows", allowVolumeExpansion=True)
    await world.put("StorageClass", "fixed")
    old = a_volume_claim("1Gi", phase, storageClassName=storage_class)
    new = a_volume_claim("2Gi", phase, storageClassName=storage_class)
    if why:
        error = await world.refused(CLAIMS, new, old)
        assert (error.code, error.message) == (403, f'persistentvolumeclaims "v" is forbidden: {why}')
    else:
        await world.admit(CLAIMS, new, old)
    await world.admit(CLAIMS, {**old, "metadata": meta("v", labels={"a": "b"})}, old)


async def test_an_ingress_gets_the_default_class(world: World) -> None:
    ingress: Document = {"metadata": meta("i"), "spec": {}}
    made = await world.admit(INGRESSES, ingress)
    assert made == ingress
    await put_class(world, "IngressClass", "usual", "01", DEFAULT_INGRESS)
    made = await world.admit(INGRESSES, ingress)
    assert made is not None
    assert made["spec"]["ingressClassName"] == "usual"
    for own in (
        {"metadata": meta("i"), "spec": {"ingressClassName": "own"}},
        {"metadata": meta("i", annotations={"kubernetes.io/ingress.class": "own"}), "spec": {}},
    ):
        assert await world.admit(INGRESSES, own) == own
