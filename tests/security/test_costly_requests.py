"""Expressions, patterns and patches that look small and cost much: refused or bounded, and nobody else waits for them.

One after the other through HTTPS, with a bystander who must be answered all the while.
"""

import asyncio
import json
import time

import pytest

from dray.apiserver.write.patching import json_patch
from dray.cel import CelRuntimeError, Environment, compile_selector
from dray.client import CLAIMS, DEVICE_CLASSES, SLICES, connect
from dray.client.transport import Call
from tests.builders.manifests import a_claim, a_request
from tests.waiting import eventually

LONGEST_S = 20.0
NESTED = "(a+)+" * 40 + "$"
EXPRESSIONS = {
    "nested repetition": f'"{"a" * 2000}!".matches("{NESTED}")',
    "huge repetition": '"a".matches("((a{100}){100}){100}")',
    "long alternation": f'"{"a" * 500}".matches("({"|".join("a" * n for n in range(1, 100))})*$")',
    "nested loops": "["
    + ",".join(map(str, range(100)))
    + "].all(a, "
    + "[1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, a+b+c+d+e > 0)))))",
    "doubling text": '"' + "x" * 1000 + '"' + ".replace('x', 'xxxxxxxxxx')" * 12 + " != ''",
    "deep brackets": "(" * 3000 + "true" + ")" * 3000,
    "many terms": " || ".join(f'device.driver == "d{n}"' for n in range(400)),
}


async def answer_to(client, claim: dict) -> int:
    return (
        await client.transport.request(Call("POST", CLAIMS.path("default"), body=json.dumps(claim).encode()))
    ).status


class Bystander:
    """Asks for something small again and again; `slowest` is how long it waited at worst."""

    def __init__(self, site):
        self._client = connect(site.kubeconfig, component="bystander")
        self.slowest = 0.0
        self.answers = 0

    async def run(self):
        while True:
            started = time.monotonic()
            await self._client.get(DEVICE_CLASSES, "gpu")
            self.slowest = max(self.slowest, time.monotonic() - started)
            self.answers += 1
            await asyncio.sleep(0.05)

    async def __aenter__(self):
        self._task = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._client.close()


@pytest.mark.parametrize("name", EXPRESSIONS)
async def test_selectors(site, name):
    client = connect(site.kubeconfig)
    label = f"costly-{list(EXPRESSIONS).index(name)}"
    async with Bystander(site) as bystander:
        started = time.monotonic()
        assert await answer_to(client, a_claim(label, a_request(selector=EXPRESSIONS[name]))) in (201, 400, 422)
        assert time.monotonic() - started < LONGEST_S
        answers = bystander.answers
        await eventually(lambda: bystander.answers > answers, "the bystander's next answer")
    assert bystander.answers
    assert bystander.slowest < LONGEST_S / 2
    await client.close()


async def test_a_costly_selector_does_not_stop_the_scheduler(site):
    """The pod that brought it waits; the next one is placed."""
    client = connect(site.kubeconfig)
    pattern = "(" * 6 + "a*" + ")*" * 6 + "b"
    expression = (
        f'device.attributes["gpu.example.com"].model.matches("{pattern}") || "{"a" * 900}".matches("{pattern}")'
    )
    assert await answer_to(client, a_claim("slow-to-judge", a_request(selector=expression))) in (201, 422)
    for pod, claim in (("waits", "slow-to-judge"), ("goes", None)):
        spec: dict = {"containers": [{"name": "main", "image": "x"}]}
        if claim:
            spec["resourceClaims"] = [{"name": "c", "resourceClaimName": claim}]
        site.kubectl("delete", "pod", pod, "--ignore-not-found", "--force", "--grace-period=0")
        await client.transport.request(
            Call(
                "POST",
                "/api/v1/namespaces/default/pods",
                body=json.dumps({"metadata": {"name": pod}, "spec": spec}).encode(),
            )
        )
    await eventually(lambda: site.kubectl("get", "pod", "goes", "-o", "jsonpath={.spec.nodeName}"), site.logs)
    await client.close()


def test_a_list_that_doubles_has_an_end():
    """Each step is cheap, and the estimate knows no length. Twenty of them would be a million elements, thirty a billion."""
    program = compile_selector("[[1]]" + ".map(x, x + x)" * 22 + ".size() > 0", Environment.devices())
    with pytest.raises(CelRuntimeError, match="list of more than 1000000 elements"):
        program.value_of({"device": None})


def test_copies_of_one_patch_are_counted_together():
    many = [{"op": "copy", "from": "/a", "path": f"/b{n}"} for n in range(100)]
    assert len(json_patch.apply({"a": "x" * 1000}, many)) == 101
    with pytest.raises(json_patch.PatchFailed, match="accumulated size increase of copy"):
        json_patch.apply({"a": "x" * 100_000}, many)


async def test_patches_that_double(site):
    """A JSON patch that copies a field into itself grows twofold with every line."""
    client = connect(site.kubeconfig)
    document = {
        "metadata": {"name": "doubling", "labels": {"a": "x"}, "annotations": {"a": "y" * 100}},
        "spec": {"selectors": []},
    }
    await client.create(DEVICE_CLASSES, document)
    patch = [{"op": "copy", "from": "/metadata", "path": f"/metadata/x{n}"} for n in range(40)]
    async with Bystander(site) as bystander:
        started = time.monotonic()
        answer = await client.transport.request(
            Call(
                "PATCH",
                "/apis/resource.k8s.io/v1/deviceclasses/doubling",
                body=json.dumps(patch).encode(),
                content_type="application/json-patch+json",
            )
        )
        assert 400 <= answer.status < 500, answer.body[:300]
        assert time.monotonic() - started < LONGEST_S
    assert bystander.slowest < LONGEST_S / 2
    await client.close()


async def test_selectors_of_lists_are_bounded(site):
    client = connect(site.kubeconfig)
    query = {"labelSelector": ",".join(f"k{n} in (a,b,c)" for n in range(2000))}
    started = time.monotonic()
    answer = await client.transport.request(Call("GET", SLICES.path(), query))
    assert answer.status < 500
    assert time.monotonic() - started < LONGEST_S
    await client.close()
