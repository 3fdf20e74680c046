"""Random work: what users, operators and meddlers do, one step after the other, all from one seed."""

from __future__ import annotations

import asyncio
import copy
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dray.client import (
    CLAIMS,
    CONFIG_MAPS,
    DEVICE_CLASSES,
    PODS,
    QUOTAS,
    TAINT_RULES,
    TEMPLATES,
    ApiError,
    Client,
    Kind,
    ServerUnreachable,
)
from tests.torture import shapes

MAX_PODS = 14
# Answers that a user must expect: refused, gone, in the way, too many, not now.
EXPECTED = frozenset({400, 403, 404, 409, 410, 422, 429, 503, 504})


class NothingToDo(Exception):
    """What the step is about is not there now."""


class Workload:
    """`step()` does one random thing. Answers are counted; one that should never come is kept in `surprises`."""

    def __init__(self, client: Client, seed: int, marker: str, nodes: Sequence[str] = ("a", "b")) -> None:
        self._client = client
        self._chance = random.Random(seed)
        self._marker = marker
        self._nodes = nodes
        self._number = 0
        self._pods: list[str] = []
        self._claims: list[str] = []
        self._stale: list[dict[str, Any]] = []
        self.outcomes: Counter[str] = Counter()
        self.surprises: list[str] = []

    async def prepare(self) -> None:
        for document in shapes.classes():
            await self._client.create(DEVICE_CLASSES, document)
        for document in shapes.templates():
            await self._client.create(TEMPLATES, document, shapes.NAMESPACE)

    async def step(self) -> None:
        steps: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (36, self._create_pod),
            (26, self._delete_pod),
            (4, self._force_delete_pod),
            (5, self._create_claim),
            (4, self._delete_claim),
            (3, self._taint),
            (3, self._remove_taints),
            (2, self._set_quota),
            (2, self._remove_quota),
            (5, self._steal_a_device),
            (5, self._write_stale_status),
            (6, self._note),
            (14, self._read_note),
        ]
        (chosen,) = self._chance.choices([step for _, step in steps], [weight for weight, _ in steps])
        await self._attempt(chosen)

    async def _attempt(self, step: Callable[[], Awaitable[None]]) -> None:
        name = step.__name__.strip("_")
        try:
            await asyncio.wait_for(step(), 20)
            self.outcomes[f"{name}: done"] += 1
        except NothingToDo:
            self.outcomes[f"{name}: nothing to do"] += 1
        except ApiError as error:
            self.outcomes[f"{name}: {error.code}"] += 1
            if error.code not in EXPECTED:
                self.surprises.append(f"{name}: {error.code} {error}")
        except (ServerUnreachable, TimeoutError):
            self.outcomes[f"{name}: no answer"] += 1

    # --- users

    async def _create_pod(self) -> None:
        if len(self._pods) >= MAX_PODS:
            await self._delete_pod()
            raise NothingToDo
        self._number += 1
        name = f"p{self._number}"
        self._pods.append(name)
        document = shapes.pod(name, self._marker, self._chance, self._claims)
        await self._client.create(PODS, document, shapes.NAMESPACE)

    async def _delete_pod(self) -> None:
        await self._client.delete(PODS, self._pick(self._pods), shapes.NAMESPACE)

    async def _force_delete_pod(self) -> None:
        await self._client.delete(PODS, self._pick(self._pods), shapes.NAMESPACE, grace_seconds=0)

    async def _create_claim(self) -> None:
        self._number += 1
        name = f"shared{self._number}"
        if len(self._claims) >= 3:
            raise NothingToDo
        self._claims.append(name)
        shape = self._chance.choice(["one-gpu", "one-part", "some-bandwidth"])
        await self._client.create(CLAIMS, shapes.claim(name, shape), shapes.NAMESPACE)

    async def _delete_claim(self) -> None:
        await self._client.delete(CLAIMS, self._pick(self._claims), shapes.NAMESPACE)

    async def _note(self) -> None:
        """Writes that no component has an interest in: only durability is at stake."""
        name = f"note{self._chance.randrange(5)}"
        document = {"metadata": {"name": name, "namespace": shapes.NAMESPACE}, "data": {"n": str(self._number)}}
        await self._client.apply(CONFIG_MAPS, document, field_manager="torture", force=True)

    async def _read_note(self) -> None:
        """Whichever server answers, it must know what another one has acknowledged."""
        await self._client.get_document(CONFIG_MAPS, f"note{self._chance.randrange(5)}", shapes.NAMESPACE)

    # --- operators

    async def _taint(self) -> None:
        self._number += 1
        node, device = self._chance.choice(self._nodes), f"gpu-{self._chance.randrange(4)}"
        effect = self._chance.choice(["NoSchedule", "NoExecute"])
        await self._client.create(TAINT_RULES, shapes.taint_rule(f"t{self._number}", node, device, effect))

    async def _remove_taints(self) -> None:
        await self._remove_all(TAINT_RULES)

    async def _set_quota(self) -> None:
        self._number += 1
        await self._client.create(QUOTAS, shapes.quota(f"q{self._number}", self._chance.randrange(2, 8)))

    async def _remove_quota(self) -> None:
        await self._remove_all(QUOTAS)

    # --- meddlers

    async def _steal_a_device(self) -> None:
        """Write an allocation by hand that names a device of another claim. The server must refuse it."""
        claims = (await self._client.list(CLAIMS)).items
        rich = [each for each in claims if each.status.allocation is not None]
        poor = [each for each in claims if each.status.allocation is None]
        if not rich or not poor:
            raise NothingToDo
        victim, thief = self._chance.choice(rich), self._chance.choice(poor)
        document = await self._client.get_document(CLAIMS, thief.metadata.name, shapes.NAMESPACE)
        loot = await self._client.get_document(CLAIMS, victim.metadata.name, shapes.NAMESPACE)
        allocation = copy.deepcopy(loot.get("status", {}).get("allocation"))
        if allocation is None:
            raise NothingToDo
        requests = [each["name"] for each in document["spec"]["devices"]["requests"]]
        for result in allocation["devices"]["results"]:
            result["request"] = requests[0]
        document["metadata"].setdefault("finalizers", []).append("resource.kubernetes.io/delete-protection")
        document["status"] = {"allocation": allocation}
        await self._client.update_status(CLAIMS, document)

    async def _write_stale_status(self) -> None:
        """Write back a claim as it was seen a while ago. It must fail unless nothing happened since: the checker compares."""
        if self._stale and self._chance.random() < 0.7:
            document = self._stale.pop(0)
            if self._chance.random() < 0.5:  # Now something has happened since.
                name, note = document["metadata"]["name"], {"torture": str(self._number)}
                await self._client.patch(CLAIMS, name, {"metadata": {"annotations": note}}, shapes.NAMESPACE)
            await self._client.update_status(CLAIMS, document)
            return
        claims = (await self._client.list(CLAIMS)).items
        if claims:
            name = self._chance.choice(claims).metadata.name
            self._stale.append(await self._client.get_document(CLAIMS, name, shapes.NAMESPACE))
        raise NothingToDo

    # --- the end

    async def clean_up(self) -> None:
        """Delete everything that was made; what is still in use goes when it is free."""
        for kind in (TAINT_RULES, QUOTAS, PODS, CLAIMS):
            await self._remove_all(kind)

    async def _remove_all(self, kind: Kind[Any]) -> None:
        for each in (await self._client.list(kind)).items:
            metadata = each.metadata
            if metadata.deletion_timestamp is None:
                try:
                    await self._client.delete(kind, metadata.name, metadata.namespace)
                except ApiError as error:
                    if not error.is_not_found:
                        raise

    def _pick(self, names: list[str]) -> str:
        if not names:
            raise NothingToDo
        return names.pop(self._chance.randrange(len(names)))
