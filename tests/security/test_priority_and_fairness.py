"""A tenant who sends everything at once waits for itself: leases, the scheduler and other tenants go on."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dray.apiserver.assembly import ServerOptions, start_server
from dray.apiserver.errors import ApiError
from dray.apiserver.request.fairness import Flow, Levels, dealt
from dray.apiserver.request.flow_control import FlowControl, flow_schema, in_order, level_config
from dray.apiserver.request.request_info import LOOPBACK, User, request_info_of
from dray.apiserver.security.default_flow_control import default_flow_control
from dray.store.sqlite import SqliteStore
from tests.apiserver.conftest import Client

AUTHENTICATED = "system:authenticated"
TENANT = User("alice", (AUTHENTICATED,))
OTHER = User("bob", (AUTHENTICATED,))
SCHEDULER = User("system:kube-scheduler", (AUTHENTICATED,))
CONTROLLERS = User("system:kube-controller-manager", (AUTHENTICATED,))
NODE = User("system:node:n1", ("system:nodes", AUTHENTICATED))
POD_ACCOUNT = User("system:serviceaccount:team:default", ("system:serviceaccounts", AUTHENTICATED))
SYSTEM_ACCOUNT = User("system:serviceaccount:kube-system:gc", ("system:serviceaccounts", AUTHENTICATED))
NOBODY = User("system:anonymous", ("system:unauthenticated",))
PODS = "/api/v1/namespaces/team/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x"
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"


def default_levels(seats: int = 245) -> Levels:
    levels = Levels(seats)
    objects = list(default_flow_control())
    configs = [level_config(each) for each in objects if each["kind"] == "PriorityLevelConfiguration"]
    schemas = [flow_schema(each) for each in objects if each["kind"] == "FlowSchema"]
    levels.configure(configs, in_order(schemas, [config.name for config in configs]))
    return levels


def asked(levels: Levels, user: User, method: str = "POST", path: str = PODS) -> Flow:
    return levels.flow_of(user, request_info_of(method, path, watch=False, field_name=""))


# --- which level ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "method", "path", "schema", "level"),
    [
        (LOOPBACK, "POST", PODS, "exempt", "exempt"),
        (NOBODY, "GET", "/healthz", "probes", "exempt"),
        (TENANT, "GET", "/readyz", "probes", "exempt"),
        (TENANT, "GET", "/metrics", "global-default", "global-default"),
        (SCHEDULER, "PUT", LEASES, "system-leader-election", "leader-election"),
        (SYSTEM_ACCOUNT, "PUT", LEASES, "system-leader-election", "leader-election"),
        (POD_ACCOUNT, "PUT", LEASES, "service-accounts", "workload-low"),
        (NODE, "PUT", LEASES, "system-node-high", "node-high"),
        (NODE, "PATCH", "/api/v1/nodes/n1/status", "system-node-high", "node-high"),
        (NODE, "GET", PODS, "system-nodes", "system"),
        (SCHEDULER, "POST", f"{PODS}/p/binding", "kube-scheduler", "workload-high"),
        (CONTROLLERS, "POST", PODS, "kube-controller-manager", "workload-high"),
        (SYSTEM_ACCOUNT, "POST", PODS, "kube-system-service-accounts", "workload-high"),
        (POD_ACCOUNT, "POST", PODS, "service-accounts", "workload-low"),
        (TENANT, "POST", PODS, "global-default", "global-default"),
        (NOBODY, "GET", PODS, "global-default", "global-default"),
        (User("odd", ()), "GET", PODS, "catch-all", "catch-all"),
    ],
)
def test_each_request_has_the_level_that_kubernetes_gives_it(
    user: User, method: str, path: str, schema: str, level: str
) -> None:
    flow = asked(default_levels(), user, method, path)
    assert (flow.schema.name, flow.schema.level) == (schema, level)


def a_schema(name: str, precedence: int, level: str, **rule: Any) -> dict[str, Any]:
    subjects = [{"kind": "User", "user": {"name": "*"}}]
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": precedence,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": subjects, "resourceRules": [{**everything, **rule}]}],
        },
    }


def a_level(name: str, shares: int, **limited: Any) -> dict[str, Any]:
    queuing = {"queues": 8, "handSize": 2, "queueLengthLimit": 3}
    made = {"nominalConcurrencyShares": shares, "limitResponse": {"type": "Queue", "queuing": queuing}, **limited}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"type": "Limited", "limited": made}}


def custom(seats: int, levels: list[dict[str, Any]], *schemas: dict[str, Any]) -> Levels:
    made = Levels(seats)
    rest = a_schema("catch-all", 10000, levels[-1]["metadata"]["name"])
    configs = [level_config(each) for each in levels]
    made.configure(configs, in_order(map(flow_schema, [*schemas, rest]), [config.name for config in configs]))
    return made


def test_rules_name_verbs_resources_namespaces_and_the_lower_precedence_wins() -> None:
    levels = custom(
        10,
        [a_level("a", 1), a_level("b", 1)],
        a_schema("team-writes", 10, "a", verbs=["create"], namespaces=["team"]),
        a_schema("logs", 20, "a", resources=["pods/log"]),
        a_schema("missing", 1, "absent"),
    )
    found = {
        ("POST", PODS): "team-writes",
        ("GET", PODS): "catch-all",
        ("POST", "/api/v1/namespaces/other/pods"): "catch-all",
        ("GET", f"{PODS}/p/log"): "logs",
        ("GET", f"{PODS}/p"): "catch-all",
    }
    assert {key: asked(levels, TENANT, *key).schema.name for key in found} == found


# --- seats and queues -------------------------------------------------------------------------------------------------


class Load:
    """Requests that hold their seat until they are told to finish."""

    def __init__(self, levels: Levels) -> None:
        self._levels = levels
        self.running: list[tuple[str, Any]] = []
        self.refused: Counter[str] = Counter()
        self.tasks: list[asyncio.Task[None]] = []

    async def send(self, user: User, count: int, method: str = "POST", path: str = PODS) -> None:
        self.tasks += [asyncio.create_task(self._one(user, method, path)) for _ in range(count)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _one(self, user: User, method: str, path: str) -> None:
        info = request_info_of(method, path, watch=False, field_name="")
        flow, turn = self._levels.flow_of(user, info), None
        assert flow.level is not None
        try:
            if not flow.level.starts_at_once(flow):
                turn = await flow.level.wait(flow, flow.schema.flow_name(user, info))
        except ApiError as error:
            self.refused[user.name if error.code == 429 else str(error)] += 1
            return
        done = asyncio.get_running_loop().create_future()
        self.running.append((user.name, done))
        await done
        flow.level.finish(flow, turn)

    async def finish(self, count: int) -> list[str]:
        """Ends the oldest requests one after the other; the users whose requests began meanwhile, in order."""
        before = len(self.running)
        for _ in range(count):
            self.running.pop(0)[1].set_result(None)
            before -= 1
            for _ in range(4):
                await asyncio.sleep(0)
        return [name for name, _ in self.running[before:]]

    def count(self, user: User) -> int:
        return sum(name == user.name for name, _ in self.running)


async def test_a_tenant_takes_its_level_and_what_others_lend_and_no_more() -> None:
    levels = default_levels()
    load = Load(levels)
    await load.send(TENANT, 1000)
    # 20 of its own, and of the others 9, 10, 20 and 90.
    assert load.count(TENANT) == 149
    # Six queues of 50.
    assert load.refused[TENANT.name] == 1000 - 149 - 300
    for user, method, path in (
        (SCHEDULER, "POST", f"{PODS}/p/binding"),
        (SCHEDULER, "PUT", LEASES),
        (NODE, "PUT", LEASES),
        (CONTROLLERS, "POST", PODS),
    ):
        await load.send(user, 1, method, path)
    # They start at once, although their levels have lent seats.
    assert load.count(SCHEDULER) == 2
    assert load.count(NODE) == load.count(CONTROLLERS) == 1


async def test_a_second_tenant_does_not_stand_behind_all_requests_of_the_first() -> None:
    levels = custom(4, [a_level("a", 1)])
    load = Load(levels)
    await load.send(TENANT, 4 + 6)
    assert load.count(TENANT) == 4
    await load.send(OTHER, 2)
    assert load.count(OTHER) == 0
    begun = await load.finish(4)
    assert sorted(begun) == ["alice", "alice", "bob", "bob"]


async def test_seats_that_come_free_go_to_levels_that_wait() -> None:
    levels = custom(4, [a_level("a", 1, lendablePercent=100), a_level("b", 1)], a_schema("a", 1, "a", verbs=["get"]))
    load = Load(levels)
    await load.send(OTHER, 2, "GET")
    await load.send(TENANT, 4)
    assert load.count(TENANT) == 2
    # The two of the other level end, and both of its seats are lent.
    assert await load.finish(2) == ["alice", "alice"]
    assert load.count(TENANT) == 4


async def test_a_level_without_lenders_and_with_a_borrowing_limit() -> None:
    lender, borrower = a_level("a", 1, lendablePercent=100), a_level("b", 1, borrowingLimitPercent=50)
    load = Load(custom(8, [lender, borrower]))
    await load.send(TENANT, 9)
    assert load.count(TENANT) == 6


async def test_whoever_gives_up_leaves_the_queue_and_no_seat_is_lost() -> None:
    levels = custom(1, [a_level("a", 1)])
    load = Load(levels)
    await load.send(TENANT, 4)
    assert load.count(TENANT) == 1
    for task in load.tasks[1:3]:
        task.cancel()
    await asyncio.sleep(0)
    assert levels.waiting == 1
    assert await load.finish(1) == ["alice"]
    # A request that is cancelled in the very moment in which it gets its seat gives it on.
    await load.send(TENANT, 2)
    load.running.pop(0)[1].set_result(None)
    await asyncio.sleep(0)
    load.tasks[4].cancel()
    for _ in range(4):
        await asyncio.sleep(0)
    assert load.count(TENANT) == 1
    assert await load.finish(1) == []
    assert levels.waiting == 0
    assert [level.executing for level in levels.limited] == [0]


async def test_waiting_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.apiserver.request.fairness.LONGEST_WAIT_S", 0.01)
    levels = custom(1, [a_level("a", 1)])
    load = Load(levels)
    await load.send(TENANT, 2)
    await asyncio.gather(*load.tasks[1:])
    assert load.refused["alice"] == 1
    assert levels.waiting == 0
    assert asked(levels, TENANT).rejected == {"time-out": 1}


async def test_bodies_that_wait_fill_a_bounded_part_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.apiserver.request.fairness.MOST_WAITING_BYTES", 1000)
    levels = custom(1, [a_level("a", 1)])
    flow = asked(levels, TENANT)
    level = flow.level
    assert level is not None
    assert level.starts_at_once(flow)
    first = asyncio.create_task(level.wait(flow, "alice", 900))
    await asyncio.sleep(0)
    with pytest.raises(ApiError, match="Too many requests"):
        await level.wait(flow, "bob", 200)
    level.finish(flow, None)
    turn = await first
    assert level.waiting_bytes == 0
    level.finish(flow, turn)


def test_only_short_descriptions_of_requests_are_remembered() -> None:
    levels = default_levels()
    before = len(levels._remembered)
    crowd = User("x", tuple(f"group-{number}" for number in range(1000)))
    for user, path in ((crowd, PODS), (User("n" * 5000, (AUTHENTICATED,)), PODS), (TENANT, "/x" * 5000)):
        assert asked(levels, user, "GET", path).schema.name in ("global-default", "catch-all")
    assert len(levels._remembered) == before
    for number in range(20_000):
        asked(levels, User(f"u{number}", (AUTHENTICATED,)))
    assert len(levels._remembered) <= 8192


def test_a_hand_has_different_cards_and_all_hands_occur() -> None:
    hands = [dealt(number, 5, 2) for number in range(20)]
    assert all(len(set(hand)) == 2 and max(hand) < 5 for hand in hands)
    assert len({tuple(hand) for hand in hands}) == 20
    assert sorted(dealt(123456789, 3, 8)) == [0, 1, 2]


# --- the whole server -------------------------------------------------------------------------------------------------


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Client]:
    store = SqliteStore(tmp_path / "dray.db")
    running = await start_server(store, ServerOptions(tmp_path, max_requests_inflight=7))
    client = Client(running, store)
    yield client
    await running.stop()
    await store.close()


async def test_the_objects_of_kubernetes_are_there_and_do_something(server: Client) -> None:
    levels = (await server.get(f"{FLOWS}/prioritylevelconfigurations")).body["items"]
    schemas = (await server.get(f"{FLOWS}/flowschemas")).body["items"]
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in [*levels, *schemas]}
    assert {each["metadata"]["name"] for each in levels} == {
        "exempt", "catch-all", "system", "node-high", "leader-election", "workload-high", "workload-low", "global-default",
    }  # fmt: skip
    assert len(schemas) == 11
    answer = await server.send("GET", "/version", user=SCHEDULER)
    assert answer.headers["x-kubernetes-pf-flowschema-uid"] == uids["kube-scheduler"]
    assert answer.headers["x-kubernetes-pf-prioritylevel-uid"] == uids["workload-high"]
    # Refusals say it, too.
    refused = await server.send("GET", "/api/v1/secrets", user=TENANT)
    assert refused.status == 403
    assert refused.headers["x-kubernetes-pf-flowschema-uid"]
    # One level and one schema more, from the next request on.
    level = a_level("tenants", 5, limitResponse={"type": "Reject"}, borrowingLimitPercent=0)
    level["metadata"].pop("uid")
    made = await server.post(f"{FLOWS}/prioritylevelconfigurations", level)
    assert made.status == 201, made.body
    schema = a_schema("tenants", 50, "tenants")
    schema["metadata"].pop("uid")
    schema["spec"]["rules"][0]["subjects"] = [{"kind": "User", "user": {"name": "alice"}}]
    schema["spec"]["rules"][0]["nonResourceRules"] = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    made = await server.post(f"{FLOWS}/flowschemas", schema)
    assert made.status == 201, made.body
    answer = await server.send("GET", "/version", user=TENANT)
    assert answer.headers["x-kubernetes-pf-flowschema-uid"] == made.body["metadata"]["uid"]


async def test_too_many_requests_get_429_and_a_time_to_come_back(
    server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reviews wait for the authorizer here, so that they hold their seats; administrators and the scheduler pass."""
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    free = asyncio.Event()
    original = type(server.running.server)._review

    async def slow(self: Any, call: Any) -> Any:
        await free.wait()
        return await original(self, call)

    monkeypatch.setattr(type(server.running.server), "_review", slow)
    sent = [asyncio.create_task(server.send("POST", reviews, review, user=TENANT)) for _ in range(400)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert (await server.send("GET", "/version", user=SCHEDULER)).status == 200
    assert (await server.get("/version")).status == 200
    metrics = (await server.get("/metrics")).body.decode()
    free.set()
    answers = await asyncio.gather(*sent)
    codes = Counter(answer.status for answer in answers)
    assert set(codes) == {201, 429}
    refused = next(answer for answer in answers if answer.status == 429)
    assert refused.headers["retry-after"] == "1"
    assert refused.body["message"] == "Too many requests, please try again later."
    labels = 'priority_level="global-default",flow_schema="global-default"'
    assert f"apiserver_flowcontrol_current_inqueue_requests{{{labels}}} 300" in metrics
    assert f'apiserver_flowcontrol_rejected_requests_total{{{labels},reason="queue-full"}} {codes[429]}' in metrics


async def test_administrators_get_through_whatever_the_objects_say(server: Client) -> None:
    for kind in ("flowschemas", "prioritylevelconfigurations"):
        for name in ("exempt", "catch-all"):
            assert (await server.send("DELETE", f"{FLOWS}/{kind}/{name}")).status == 200
    assert (await server.get("/version")).status == 200
    assert (await server.send("GET", "/version", user=User("odd", ()))).status in (200, 403)


def calls_made(act: Any) -> int:
    count = 0

    def counting(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count - 1  # setprofile itself


def test_a_server_without_contention_does_next_to_nothing() -> None:
    """Counted in function calls, those of C included: the schema is looked up, a seat is taken and given back."""
    levels = FlowControl().levels
    info = request_info_of("POST", PODS, watch=False, field_name="")
    levels.flow_of(TENANT, info)

    def one_request() -> None:
        flow = levels.flow_of(TENANT, info)
        assert flow.level is not None
        if flow.level.starts_at_once(flow):
            flow.level.finish(flow, None)

    assert calls_made(one_request) <= 10
