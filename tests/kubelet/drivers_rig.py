"""Drivers on real sockets and the claims of pods that need them; a test makes up which claims there are."""

from dray.api.codec import to_object
from dray.api.core import Pod
from dray.client import ApiError
from dray.clock import RealClock
from dray.kubelet.checkpoint import CheckpointFile
from dray.kubelet.drivers import Drivers
from dray.kubelet.prepare import PodClaims
from tests.builders.manifests import a_pod
from tests.kubelet.test_claims import allocated_claim
from tests.waiting import PAUSE_S, eventually, pass_time

DRIVER = "gpu.example.com"


def pod_with_claims(*claims, uid="pod-1"):
    document = a_pod("p", namespace="ns", uid=uid, claims={name: name for name in claims})
    return to_object(document, Pod)


class Claims:
    """The API as far as preparing needs it: claims by name."""

    def __init__(self) -> None:
        self.by_name = {}

    async def get(self, kind, name, namespace):
        if name not in self.by_name:
            raise ApiError(404, "NotFound", f'resourceclaims.resource.k8s.io "{name}" not found')
        return self.by_name[name]


class DriversRig:
    """What a kubelet has for drivers. Sockets and calls are real; the clock may be simulated."""

    def __init__(self, root, clock=None, call_timeout_s=2):
        self.keeps_share_ids = True
        self.root = root
        self.clock = clock or RealClock()
        self.api = Claims()
        self.wiped: list[str] = []
        # Method and gRPC code of each call, as the metrics see them.
        self.calls: list[tuple[str, str]] = []
        self._call_timeout_s = call_timeout_s
        self.drivers = self._make_drivers()
        self.claims = self._make_claims()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.drivers.close()

    def _make_drivers(self):
        return Drivers(self.root / "plugins_registry", self.clock, self._wipe, observe=self._observe)

    def _make_claims(self):
        return PodClaims(
            self.api,
            self.drivers,
            CheckpointFile(self.root),
            keeps_share_ids=self.keeps_share_ids,
            call_timeout_s=self._call_timeout_s,
        )

    def _observe(self, driver, method, code, seconds):
        self.calls.append((method.rpartition("/")[2], code))

    async def _wipe(self, driver):
        self.wiped.append(driver)

    def has(self, *names, uid="", pods=("pod-1",), drivers=(DRIVER,)):
        for name in names:
            self.api.by_name[name] = allocated_claim(name, uid or f"uid-{name}", drivers, pods)

    def restart_claims(self):
        """The claims start over from their checkpoint; the drivers stay."""
        self.claims = self._make_claims()

    async def restart(self):
        await self.drivers.close()
        self.drivers = self._make_drivers()
        self.claims = self._make_claims()

    async def until(self, holds, what):
        await eventually(holds, what)

    async def connected(self, value=True):
        await self.until(
            lambda: (DRIVER in self.drivers.names() and self.drivers.endpoint(DRIVER).is_connected) == value,
            f"connected to be {value}",
        )

    async def pass_time(self, seconds):
        await pass_time(self.clock, seconds, pause_s=PAUSE_S)
