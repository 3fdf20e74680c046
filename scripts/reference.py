"""Writes the reference pages that follow from the code: commands, feature gates and metrics. `--check` only compares."""

import argparse
import sys
from pathlib import Path

import click

from dray.apiserver.request.flow_control import FlowControl
from dray.apiserver.server import ServerMetrics
from dray.apiserver.write.admission.webhook_plugins import WebhookMetrics
from dray.cli.main import COMMANDS, cli
from dray.client import POOL_STATUS_REQUESTS, TAINT_RULES, Client, Informers
from dray.controllers.context import ControllerContext
from dray.controllers.controller_manager import (
    BUILDERS,
    ControllerOptions,
)
from dray.driver.net import NetDriver
from dray.driver.nvidia import NvidiaDriver
from dray.features import GATES, RELEASES, FeatureGates
from dray.kubelet.metrics import KubeletMetrics
from dray.scheduler.metrics import SchedulerMetrics
from dray.telemetry import Metric, Registry

PAGES = Path(__file__).parent.parent / "docs" / "reference"


def feature_gates_page() -> str:
    head = " | ".join(RELEASES)
    lines = [
        "# Feature gates",
        "",
        "Made from `dray/features.py`. By default everything is on; `--emulate RELEASE` takes that release's column, and",
        "`--feature-gates A=true,B=false` changes single gates on top. A gate that goes off takes those along that need it, unless a release",
        "is emulated: then that is refused, as Kubernetes does.",
        "",
        f"| gate | needs | {head} | default |",
        "|---|---|" + "---|" * (len(RELEASES) + 1),
    ]
    default = FeatureGates.default()
    for gate in GATES.values():
        states = [gate.at(release) for release in RELEASES]
        cells = [
            f"{s.stage.lower()}, {'on' if s.default else 'off'}{' (locked)' if s.locked else ''}" if s else ""
            for s in states
        ]
        needs = ", ".join(gate.needs)
        lines.append(
            f"| `{gate.name}` | {needs} | {' | '.join(cells)} | {'on' if default.enabled(gate.name) else 'off'} |"
        )
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    lines = [
        "# Commands",
        "",
        "Made from the commands' own `--help`. Exit codes: 0 yes, 1 no, 2 wrong usage, 3 broken world, 130 interrupted.",
        "",
    ]
    root = click.Context(cli, info_name="dray", help_option_names=["-h", "--help"])
    for name in sorted(COMMANDS):
        command = cli.get_command(root, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=root, max_content_width=100, terminal_width=100)
        lines += [f"## dray {name}", "", "```", command.get_help(context), "```", ""]
    return "\n".join(lines)


def registries() -> dict[str, Registry]:
    """The metrics of each part, registered as the part itself does it; nothing runs."""
    # Neither asks for anything before the first request.
    server = ServerMetrics(None, None, Registry())  # type: ignore[arg-type]
    WebhookMetrics(server.registry)
    FlowControl().register(server.registry)
    client = Client(None)  # type: ignore[arg-type]
    context = ControllerContext(client, Informers(client), FeatureGates.default())
    for build in BUILDERS.values():
        build(context, ControllerOptions(root_ca="-"), (POOL_STATUS_REQUESTS, TAINT_RULES))
    kubelet = Registry()
    KubeletMetrics(kubelet)
    nvidia, net = Registry(), Registry()
    NvidiaDriver().add_metrics(nvidia)
    NetDriver().add_metrics(net)
    return {
        "dray apiserver": server.registry,
        "dray controller-manager": context.registry,
        "dray scheduler": SchedulerMetrics().registry,
        "dray kubelet": kubelet,
        "dray driver nvidia": nvidia,
        "dray driver net": net,
    }


WHERE = {
    "dray apiserver": "`/metrics` of the API server, with the administrator's credentials: `kubectl get --raw /metrics`.",
    "dray controller-manager": "`/metrics` on `--secure-port`, by default 10257.",
    "dray scheduler": "`/metrics` on `--secure-port`, by default 10259.",
    "dray driver nvidia": "`/metrics` at `--metrics-address`, in plain HTTP; labels are told in [NVIDIA cards](../nvidia.md).",
    "dray driver net": "`/metrics` at `--metrics-address`, in plain HTTP; labels are told in [Network interfaces](../net.md).",
    "dray kubelet": "`/metrics` on the loopback interface at `--healthz-port`, in plain HTTP.",
}


def metrics_page() -> str:
    lines = [
        "# Metrics",
        "",
        "Made from the registries of the parts. Names, labels and types are those of Kubernetes where it has them; the format is",
        "Prometheus text. `dray up` serves those of its own parts beside the API server's, with the same credentials: `/metrics/scheduler`,",
        "`/metrics/controller-manager` and `/metrics/kubelet/NODE`, also where scheduler and controllers are in another process. Simulated",
        "nodes have none (`tests/cli/test_up.py::test_metrics_of_all_parts_are_served`).",
        "",
    ]
    for part, registry in registries().items():
        lines += [f"## {part}", "", WHERE[part], "", "| metric | type | labels | |", "|---|---|---|---|"]
        lines += [_metric_row(metric) for metric in registry]
        lines.append("")
    return "\n".join(lines)


def _metric_row(metric: Metric) -> str:
    return f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.help_text.rstrip('.')} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    stale = []
    pages = {"feature-gates.md": feature_gates_page(), "commands.md": commands_page(), "metrics.md": metrics_page()}
    for name, text in pages.items():
        path = PAGES / name
        if path.exists() and path.read_text() == text:
            continue
        if is_check:
            stale.append(name)
        else:
            PAGES.mkdir(exist_ok=True)
            path.write_text(text)
    for name in stale:
        print(f"docs/reference/{name} is not what the code says: run `make fix`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
