"""KubeSchedulerConfiguration: what is read, what is refused, how profiles come together."""

import pytest
from tests.builders.objects import a_node, a_pod
from tests.scheduler.world import World

from dray.features import FeatureGates
from dray.scheduler.assembly import default_registry
from dray.scheduler.config import ConfigError, DurationError, SchedulerConfig, load, parse, parse_duration
from dray.scheduler.framework.profile import EnabledPlugin, PluginSet, ProfileConfig

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
GATES = FeatureGates.default()


def config(**fields):
    return parse({**HEAD, **fields}, GATES)


def test_defaults():
    read = config()
    assert read == SchedulerConfig()
    assert read.profiles[0].scheduler_name == "default-scheduler"
    election = read.leader_election
    assert (election.namespace, election.name, election.lease_duration_s) == ("kube-system", "kube-scheduler", 15.0)


def test_file_is_read(tmp_path):
    file = tmp_path / "scheduler.yaml"
    file.write_text(
        """
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        percentageOfNodesToScore: 30
        leaderElection: {leaderElect: false}
        profiles:
        - schedulerName: packing
          plugins: {score: {disabled: [{name: "*"}], enabled: [{name: NodeResourcesFit, weight: 5}]}}
          pluginConfig:
          - name: DynamicResources
            args: {filterTimeout: 2s, bindingTimeout: 1m30s}
        """
    )
    read = load(file, GATES)
    assert read.percentage_of_nodes_to_score == 30
    assert not read.leader_election.leader_elect
    profile = read.profiles[0]
    assert profile.scheduler_name == "packing"
    assert profile.plugins["score"] == PluginSet((EnabledPlugin("NodeResourcesFit", 5),), ("*",))
    assert profile.args["DynamicResources"] == {"filterTimeout": "2s", "bindingTimeout": "1m30s"}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"percentageOfNodesToScore": 101}, "percentageOfNodesToScore: Invalid value: 101: not in valid range"),
        ({"parallelism": 0}, "parallelism: Invalid value: 0"),
        ({"podInitialBackoffSeconds": 20}, "podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal"),
        ({"profiles": [{}, {}]}, 'profiles[1].schedulerName: Duplicate value: "default-scheduler"'),
        ({"profiles": [{"plugins": {"nonsense": {}}}]}, "unknown extension point nonsense"),
        ({"profiles": [{"plugins": {"filter": {"enabled": [{}]}}}]}, "enabled[0].name: Required value"),
        (
            {"profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "-1s"}}]}]},
            "must be zero or positive",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"bindingTimeout": "500ms"}}]}]},
            "must be at least 1 second",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "soon"}}]}]},
            'invalid duration "soon"',
        ),
        ({"leaderElection": {"leaseDuration": "5s"}}, "leaderElection.leaseDuration: must be greater"),
    ],
)
def test_mistakes_name_their_field(fields, text):
    with pytest.raises(ConfigError) as problem:
        config(**fields)
    assert text in str(problem.value)


def test_other_documents_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="apiVersion and kind must be"):
        parse({"kind": "Pod"}, GATES)
    with pytest.raises(ConfigError, match="no-such-file"):
        load(tmp_path / "no-such-file", GATES)


def test_timeout_needs_its_gate():
    gates = GATES.with_overrides({"DRASchedulerFilterTimeout": False})
    profiles = [{"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "1s"}}]}]
    with pytest.raises(ConfigError, match="the DRASchedulerFilterTimeout feature is disabled"):
        parse({**HEAD, "profiles": profiles}, gates)


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("1m30s", 90), ("250ms", 0.25), ("-2s", -2), ("0", 0), ("1.5h", 5400)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "s", "1x", "1s1"])
def test_not_durations(text):
    with pytest.raises(DurationError):
        parse_duration(text)


class Picky:
    """A plugin as a user would write it: only nodes with an even number."""

    name = "Picky"

    def filter(self, cycle, pod, node):
        from dray.scheduler.framework.interface import unschedulable

        return None if int(node.name.rpartition("-")[2]) % 2 == 0 else unschedulable("node(s) are odd")

    def score(self, cycle, pod, node):
        return int(node.name.rpartition("-")[2])


async def test_user_plugin_filters_and_scores():
    registry = default_registry()
    registry.add("Picky", lambda args, handle: Picky())
    plugins = {"multiPoint": PluginSet((EnabledPlugin("Picky", 100),))}
    chosen = SchedulerConfig(profiles=(ProfileConfig(plugins=plugins),))
    world = World(*[a_node(f"node-{n}") for n in range(1, 7)], a_pod(), config=chosen, plugins=registry)
    await world.settle()
    assert world.node_of() == "node-6"
    only_odd = World(a_node("node-1"), a_node("node-3"), a_pod(), config=chosen, plugins=registry)
    await only_odd.settle()
    assert only_odd.message().startswith("0/2 nodes are available: 2 node(s) are odd. ")


def test_unknown_plugin_is_named():
    plugins = {"multiPoint": PluginSet((EnabledPlugin("Nobody"),))}
    with pytest.raises(ConfigError, match="plugin Nobody is not known"):
        World(config=SchedulerConfig(profiles=(ProfileConfig(plugins=plugins),)))


def test_plugins_of_kubernetes_that_have_nothing_to_do_here_are_accepted():
    enabled = [{"name": "VolumeBinding"}, {"name": "ImageLocality", "weight": 3}]
    read = config(profiles=[{"plugins": {"multiPoint": {"enabled": enabled}}}])
    assert read.profiles[0].plugins["multiPoint"].enabled == ()


async def test_two_profiles_share_queue_and_nodes():
    chosen = SchedulerConfig(profiles=(ProfileConfig(), ProfileConfig(scheduler_name="second")))
    world = World(a_node(cpu="1"), a_pod("p1", cpu="1"), a_pod("p2", cpu="1", scheduler="second"), config=chosen)
    await world.settle()
    assert sorted((world.node_of("p1"), world.node_of("p2"))) == ["", "node-1"]


def test_order_of_plugins_at_an_extension_point():
    from dray.scheduler.assembly import make_profiles

    plugins = {"filter": PluginSet((EnabledPlugin("DynamicResources"),))}
    world = World(config=SchedulerConfig(profiles=(ProfileConfig(plugins=plugins),)))
    names = [plugin.name for plugin in world.scheduler.profiles["default-scheduler"].at.filter]
    assert names[0] == "DynamicResources"
    assert names.count("DynamicResources") == 1
    plain = make_profiles(SchedulerConfig(), default_registry(), world.scheduler.handle)["default-scheduler"]
    assert [plugin.name for plugin in plain.at.filter] == [
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
    ]
    assert plain.weights == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
    }
