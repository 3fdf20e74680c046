"""The plugin of container runtimes: containers get what the rule says, whenever they come and whenever the rule changes."""

import asyncio
import contextlib

import pytest
from tests.driver.nri_runtime import StandInRuntime, nri_container
from tests.waiting import eventually

from dray.driver import nri
from dray.driver.nri import NriPlugin, RuntimeUnreachable
from dray.proto import nri_v1alpha1_pb2 as messages


class Rules:
    """Containers with a variable CPUS get these, all others the rest."""

    rest = "0-3"

    def __call__(self, environment):
        return messages.LinuxResources(cpu=messages.LinuxCPU(cpus=environment.get("CPUS", self.rest)))


@contextlib.asynccontextmanager
async def a_plugin(socket, rule):
    plugin = NriPlugin(socket, "test", rule)
    task = asyncio.create_task(plugin.run())
    try:
        yield plugin
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(nri, "CONNECT_AGAIN_AFTER_S", 0.02)
    monkeypatch.setattr(nri, "TRY_AGAIN_AFTER_S", 0.02)


async def test_containers_get_what_the_rule_says_from_the_beginning_and_after_changes(tmp_path):
    rule = Rules()
    async with (
        StandInRuntime(tmp_path / "n", [nri_container("old")]) as runtime,
        a_plugin(tmp_path / "n", rule) as plugin,
    ):
        await runtime.registered.wait()
        assert runtime.cpus == {"old": "0-3"}
        rule.rest = "0-2"
        await plugin.apply()
        await runtime.create(nri_container("pinned", CPUS="3"))
        await runtime.create(nri_container("new"))
        assert runtime.cpus == {"old": "0-2", "pinned": "3", "new": "0-2"}
        await runtime.stop("pinned")
        rule.rest = "0-3"
        await plugin.apply()
        assert runtime.cpus == {"old": "0-3", "pinned": "3", "new": "0-3"}


async def leave_only_cpu_0(rule, plugin):
    rule.rest = "0"
    await plugin.apply()


async def test_a_change_while_a_container_is_created_reaches_it(tmp_path):
    rule = Rules()
    async with StandInRuntime(tmp_path / "n") as runtime, a_plugin(tmp_path / "n", rule) as plugin:
        await runtime.registered.wait()
        await runtime.create(nri_container("new"), meanwhile=leave_only_cpu_0(rule, plugin))
        # The runtime lost the update: the container was created with the CPUs of before.
        await eventually(lambda: runtime.cpus["new"] == "0")


async def test_a_change_while_a_container_starts_reaches_it(tmp_path):
    rule = Rules()
    async with StandInRuntime(tmp_path / "n") as runtime, a_plugin(tmp_path / "n", rule) as plugin:
        await runtime.registered.wait()
        await runtime.create(nri_container("new"))
        await runtime.start("new", meanwhile=leave_only_cpu_0(rule, plugin))
        # The runtime wrote the update down and started the container without it.
        await eventually(lambda: runtime.cpus["new"] == "0")


async def test_a_container_that_starts_while_the_plugin_connects_is_seen_to(tmp_path):
    async with StandInRuntime(tmp_path / "n", [nri_container("new")]) as runtime:
        runtime.cpus["new"] = "0-7"
        runtime.being_started.add("new")
        async with a_plugin(tmp_path / "n", Rules()):
            await runtime.start("new", meanwhile=runtime.registered.wait())
            await eventually(lambda: runtime.cpus["new"] == "0-3")


async def test_a_runtime_that_restarts_is_met_again(tmp_path):
    rule = Rules()
    async with (
        StandInRuntime(tmp_path / "n", [nri_container("old")]) as runtime,
        a_plugin(tmp_path / "n", rule) as plugin,
    ):
        await runtime.registered.wait()
        runtime.hang_up()
        rule.rest = "1"
        await runtime.registered.wait()
        assert runtime.cpus == {"old": "1"}
        await plugin.apply()


async def test_a_runtime_that_is_not_there_and_one_that_refuses(tmp_path):
    rule = Rules()
    async with a_plugin(tmp_path / "n", rule) as plugin:
        with pytest.raises(RuntimeUnreachable, match="is not connected"):
            await plugin.apply()
        async with StandInRuntime(tmp_path / "n", [nri_container("old")]) as runtime:
            await runtime.registered.wait()
            runtime.refuses.add("old")
            rule.rest = "2"
            with pytest.raises(RuntimeUnreachable, match="could not change 1 containers: old"):
                await plugin.apply()


async def test_calls_that_the_plugin_does_not_know_are_answered(tmp_path):
    async with StandInRuntime(tmp_path / "n") as runtime, a_plugin(tmp_path / "n", Rules()):
        await runtime.registered.wait()
        response = await runtime.call_for_status("ValidateContainerAdjustment", messages.Empty())
        assert response.status.code == 12
        await runtime.create(nri_container("still-works"))
