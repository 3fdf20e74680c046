"""The node agent's metrics, by the kubelet's names."""

from collections.abc import Callable, Iterable, Mapping

from dray.kubelet.claims import PREPARE
from dray.telemetry import Registry

# 15 buckets from 0.1 to 40 seconds, each the same factor above the last.
_BUCKETS = tuple(round(0.1 * (400 ** (i / 14)), 6) for i in range(15))


class KubeletMetrics:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.claims_in_use: Callable[[], Mapping[str, int]] = dict
        self._operations = registry.histogram(
            "dra_operations_duration_seconds",
            "Latency of preparing and unpreparing the claims of a pod.",
            ("operation_name", "is_error"),
            buckets=_BUCKETS,
        )
        self._calls = registry.histogram(
            "dra_grpc_operations_duration_seconds",
            "Latency of calls to DRA drivers.",
            ("driver_name", "method_name", "grpc_status_code"),
            buckets=_BUCKETS,
        )
        # The name that KEP-4381 has for the same measurements.
        self._calls_by_kep_name = registry.histogram(
            "dra_operations_seconds",
            "Latency of calls to DRA drivers, by the name in KEP-4381.",
            ("driver_name", "method_name", "grpc_status_code"),
            buckets=_BUCKETS,
        )
        self._prepare_skips = registry.counter(
            "dra_node_prepare_skips_total", "Prepare calls that drivers asked to skip.", ("driver_name",)
        )
        self._unprepare_skips = registry.counter(
            "dra_node_unprepare_skips_total", "Unprepare calls that drivers asked to skip.", ("driver_name",)
        )
        self._rejections = registry.counter(
            "kubelet_admission_rejections_total", "Pods that were not let in.", ("reason",)
        )
        self._start_errors = registry.counter(
            "kubelet_started_containers_errors_total",
            "Containers that could not be started.",
            ("container_type", "code"),
        )
        self.plugins: Callable[[], Iterable[tuple[str, str]]] = tuple
        registry.computed_gauge(
            "plugin_manager_total_plugins",
            "Registration sockets by what became of them.",
            lambda: [({"socket_path": path, "state": state}, 1.0) for path, state in self.plugins()],
        )
        registry.computed_gauge(
            "dra_resource_claims_in_use", "Prepared claims by driver; <any> counts each claim once.", self._in_use
        )

    def observe_call(self, driver: str, method: str, code: str, seconds: float) -> None:
        self._calls.observe(seconds, driver, method, code)
        self._calls_by_kep_name.observe(seconds, driver, method, code)

    def observe_operation(self, operation: str, is_error: bool, seconds: float) -> None:
        self._operations.observe(seconds, operation, "true" if is_error else "false")

    def count_rejection(self, reason: str) -> None:
        self._rejections.inc(_rejection_label(reason))

    def count_start_error(self, container_type: str, code: str) -> None:
        self._start_errors.inc(container_type, code)

    def count_skip(self, driver: str, operation: str) -> None:
        (self._prepare_skips if operation == PREPARE else self._unprepare_skips).inc(driver)

    def _in_use(self) -> Iterable[tuple[Mapping[str, str], float]]:
        return [({"driver_name": driver}, float(count)) for driver, count in self.claims_in_use().items()]


_KNOWN_REJECTIONS = frozenset(
    (
        "OutOfcpu",
        "OutOfmemory",
        "OutOfephemeral-storage",
        "OutOfpods",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TaintToleration",
        "InvalidNodeInfo",
        "UnexpectedAdmissionError",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
    )
)


def _rejection_label(reason: str) -> str:
    """Resources have any name; as a label they would have no bound."""
    if reason in _KNOWN_REJECTIONS:
        return reason
    return "OutOfExtendedResources" if reason.startswith("OutOf") else "Other"
