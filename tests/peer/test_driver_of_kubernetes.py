"""Kubernetes' own test driver passes `dray driver test`: what only Dray asks for are warnings."""

import pytest

from dray.testing.driver_checks import check_driver
from dray.testing.driver_process import Target
from tests.peer.binaries import program, why_not

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(bool(why_not("dra-test-driver")), reason=why_not("dra-test-driver")),
]

# It makes no directory for its socket.
START = (
    "mkdir -p {root}/plugins/test-driver.cdi.k8s.io; exec %s --kubeconfig={kubeconfig} kubelet-plugin --node-name={node} "
    "--datadir={root}/plugins --plugin-registration-path={root}/plugins_registry --cdi-dir={cdi}"
)


async def test_it_conforms_with_two_warnings():
    target = Target(("sh", "-c", START % program("dra-test-driver")))
    verdicts = [each async for each in check_driver(target, 30.0)]
    assert [each for each in verdicts if each.problem or each.skipped] == []
    assert [each.check for each in verdicts if each.warning] == [
        "refuses a device that it does not publish",
        "refuses a device that another claim holds",
    ]
    assert "reports the health of devices that it publishes" in {each.check for each in verdicts}
