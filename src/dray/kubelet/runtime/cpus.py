"""Where a container's environment names the CPUs that its claims were given."""

from collections.abc import Mapping

from dray.api.cpuset import parse_cpu_list

ENVIRONMENT_PREFIX = "DRA_CPUSET_"


def cpus_of_environment(environment: Mapping[str, str]) -> set[int]:
    """All CPUs that claims of the container were given; empty means no pinning."""
    cpus: set[int] = set()
    for name, value in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            try:
                cpus |= parse_cpu_list(value)
            except ValueError:
                continue
    return cpus
