"""`dray bench`: the benchmark workloads, from pod creation over HTTPS to binding."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from dray.cli.main import EXIT_NO, BrokenWorld
from dray.sim.bench.load import Measured, limits_text, measure_workload, missed
from dray.sim.bench.workload import Workload, load_workload

DEFAULT_DIRECTORY = Path("benchmarks/workloads/cluster")


@click.command("bench", epilog="Example: dray bench burst --scale 0.1")
@click.argument("names", nargs=-1)
@click.option(
    "--workloads",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=DEFAULT_DIRECTORY,
    show_default=True,
    help="Directory with one YAML file per workload.",
)
@click.option(
    "--scale", default=1.0, show_default=True, help="Run smaller: part of the nodes and pods; expects nothing."
)
@click.option(
    "--pods", type=click.IntRange(1), help="Only so many of the measured pods, on all nodes; a part of a long run."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default=None, help="Default: json in a pipe.")
@click.option(
    "--processes",
    default=2,
    show_default=True,
    type=click.IntRange(1, 2),
    help="Of the control plane: all in one, or controllers and scheduler apart from the API server.",
)
@click.option("--profile", type=click.Path(dir_okay=False, path_type=Path), hidden=True)
def bench(
    names: tuple[str, ...],
    workloads: Path,
    scale: float,
    pods: int | None,
    output: str | None,
    processes: int,
    profile: Path | None,
) -> None:
    """Measure whole clusters: API server, controllers, scheduler."""
    chosen = _choose(workloads, names)
    as_table = output == "table" or (output is None and sys.stdout.isatty())
    results: list[tuple[Workload, Measured]] = []
    for workload in chosen:
        smaller = workload if scale == 1.0 else workload.scaled(scale)
        smaller = smaller if pods is None else smaller.part(pods)
        measured = _measured(smaller, processes, profile)
        results.append((smaller, measured))
        if as_table:
            click.echo(_line(smaller, measured))
    if not as_table:
        rows = [{**measured.document(), "missed": missed(workload, measured)} for workload, measured in results]
        click.echo(json.dumps({"workloads": rows}, indent=1))
    if any(missed(workload, measured) for workload, measured in results):
        sys.exit(EXIT_NO)


def _choose(directory: Path, names: tuple[str, ...]) -> list[Workload]:
    found = {path.stem: path for path in sorted(directory.glob("*.yaml"))}
    unknown = [name for name in names if name not in found]
    if unknown:
        raise click.UsageError(f"no workload {', '.join(unknown)} in {directory}; there are {', '.join(found)}")
    return [load_workload(found[name]) for name in names or found]


def _measured(workload: Workload, processes: int, profile: Path | None) -> Measured:
    try:
        return measure_workload(workload, processes, profile)
    except TimeoutError:
        raise BrokenWorld(f"{workload.name}: the control plane gave no answer in time; is the machine busy?") from None
    except (OSError, RuntimeError) as error:
        raise BrokenWorld(f"{workload.name}: {error}") from None


def _line(workload: Workload, measured: Measured) -> str:
    verdict = "; ".join(missed(workload, measured)) or "ok"
    limits = limits_text(workload)
    leases = (
        f"  {measured.leases_per_second:.0f} leases/s of {workload.leases_per_second:.0f}, at most {measured.lease_late_s:.2f} s late, "
        f"{measured.lease_cpu_ms:.3f} ms each"
        if workload.lease_period_s
        else ""
    )
    ratio = f"  x{measured.cost_ratio:.2f} of {workload.reference_nodes} nodes" if workload.reference_nodes else ""
    return (
        f"{measured.workload:<28} {measured.pods_per_second:>7.1f} pods/s  decision p50 {measured.decision_p50_ms:.2f} "
        f"p99 {measured.decision_p99_ms:.2f} ms  attempt p99 {measured.attempt_p99_ms:.1f} ms  "
        f"cpu {measured.plane_cpu_ms_per_pod:.2f} ms/pod (load {measured.cpu_ms_per_pod:.2f})  {measured.memory_mb:.0f} MB{leases}{ratio}  "
        f"loop {measured.loop_s:.2f} s  {verdict}{f' (limits: {limits})' if limits else ''}"
    )
