"""Which of the scheduler's writes ask the API server to go first: those that bind a pod."""

import pytest
from tests.builders.objects import a_claim, a_pod
from tests.client.scripted import ScriptedTransport, ok

from dray.client import Client
from dray.clock import SimulatedClock
from dray.scheduler.service import ClientWriter

POD, CLAIM = a_pod("pod"), a_claim("claim")
POD_ANSWER = ok({"kind": "Pod", "metadata": {"name": "pod", "namespace": "default"}})
CLAIM_ANSWER = ok({"kind": "ResourceClaim", "metadata": {"name": "claim", "namespace": "default"}})


@pytest.mark.parametrize(
    ("write", "answer", "goes_first"),
    [
        pytest.param(lambda writer: writer.update_claim(CLAIM), CLAIM_ANSWER, True, id="finalizer"),
        pytest.param(lambda writer: writer.update_claim_status(CLAIM), CLAIM_ANSWER, True, id="allocation"),
        pytest.param(lambda writer: writer.bind(POD, "node-1"), POD_ANSWER, True, id="binding"),
        pytest.param(
            lambda writer: writer.patch_pod_status(POD, {"phase": "Pending"}), POD_ANSWER, True, id="condition"
        ),
        pytest.param(lambda writer: writer.create_claim(CLAIM), CLAIM_ANSWER, False, id="claim-for-extended-resources"),
        pytest.param(lambda writer: writer.delete_claim(CLAIM), CLAIM_ANSWER, False, id="claim-that-goes"),
    ],
)
async def test_what_binds_a_pod_goes_first(write, answer, goes_first):
    transport = ScriptedTransport([answer], [])
    await write(ClientWriter(Client(transport, clock=SimulatedClock(), user_agent="scheduler")))
    (call,) = transport.calls
    assert call.urgent is goes_first
