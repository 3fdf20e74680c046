"""Drivers that answer anything that fits the protocol: the pod waits or starts, and the checkpoint can be read again."""

# ruff: noqa: PT017 - an answer and a refusal are both fine here

import asyncio
import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.kubelet.checkpoint import CheckpointFile
from dray.kubelet.claims import ClaimRefused
from dray.kubelet.drivers import DriverClient
from dray.kubelet.errors import DriverError
from dray.kubelet.prepare import PodClaims
from dray.proto import dra_v1_pb2, dra_v1beta1_pb2
from tests.kubelet.drivers_rig import DRIVER, Claims, pod_with_claims
from tests.kubelet.test_claims import allocated_claim

EXAMPLES = int(os.environ.get("DRAY_FUZZ_EXAMPLES", "60"))
fuzzed = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

TEXT = st.text(max_size=12).map(lambda text: text.encode("utf-8", "ignore").decode())
UIDS = st.sampled_from(["uid-a", "uid-b", "", "unknown"]) | TEXT
DEVICES = st.fixed_dictionaries(
    {
        "request_names": st.lists(TEXT, max_size=3),
        "pool_name": TEXT,
        "device_name": TEXT,
        "cdi_device_ids": st.lists(TEXT, max_size=3),
    }
)
ANSWERS = st.dictionaries(UIDS, st.tuples(TEXT | st.just(""), st.lists(DEVICES, max_size=3)), max_size=4)


class LyingEndpoint:
    """Answers through the real messages and the real conversion, without a socket."""

    def __init__(self, messages, prepare, unprepare):
        self._messages = messages
        self._prepare, self._unprepare = prepare, unprepare

    async def prepare(self, claims, timeout_s=1.0):
        response = self._messages.NodePrepareResourcesResponse()
        for uid, (error, devices) in self._prepare.items():
            response.claims[uid].error = error
            for device in devices:
                response.claims[uid].devices.add(**device)
        read = self._messages.NodePrepareResourcesResponse.FromString(response.SerializeToString())
        return {
            uid: each.error or [DriverClient._device(one) for one in each.devices] for uid, each in read.claims.items()
        }

    async def unprepare(self, claims, timeout_s=1.0):
        return {uid: error for uid, (error, _) in self._unprepare.items()}


class OneDriver:
    def __init__(self, endpoint):
        self._endpoint = endpoint

    def endpoint(self, driver):
        return self._endpoint


@fuzzed
@given(prepare=ANSWERS, unprepare=ANSWERS, messages=st.sampled_from([dra_v1_pb2, dra_v1beta1_pb2]))
def test_any_answer(prepare, unprepare, messages):
    async def live():
        with tempfile.TemporaryDirectory(prefix="dray-z") as folder:
            api = Claims()
            for name in ("a", "b"):
                api.by_name[name] = allocated_claim(name, f"uid-{name}", (DRIVER,), ("pod-1",))
            file = CheckpointFile(Path(folder))
            claims = PodClaims(api, OneDriver(LyingEndpoint(messages, prepare, unprepare)), file)
            is_prepared = False
            try:
                await claims.prepare(pod_with_claims("a", "b"))
                is_prepared = True
            except (DriverError, ClaimRefused) as error:
                assert str(error)
            wanted = {"uid-a", "uid-b"}
            truthful = prepare.keys() == wanted and not any(error for error, _ in prepare.values())
            assert is_prepared == truthful
            assert {state.uid for state in file.read()} == wanted
            try:
                await claims.unprepare("pod-1")
            except DriverError as error:
                assert str(error)
                assert file.read(), "what is not given back stays noted"
            else:
                assert file.read() == []

    asyncio.run(live())
