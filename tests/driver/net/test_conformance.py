"""The checks of `dray driver test`, against the driver as a process, with a namespace of the kernel in place of the machine's network."""

import sys

import pytest
from tests.driver.test_conformance import HELD, problems

DRIVER = f"{sys.executable} -m dray driver net"
PLACES = "--kubeconfig {kubeconfig} --node-name {node} --kubelet-root {root} --cdi-dir {cdi}"


@pytest.mark.parametrize("options", ["--interface eth[12]", pytest.param("--share eth*", marks=pytest.mark.torture)])
async def test_the_driver_conforms(host, options):
    found = await problems(f"{DRIVER} {PLACES} --network-namespace {host.path} {options}", 60.0)
    assert {check: problem for check, problem in found.items() if problem} in (
        {},
        {HELD: "its devices are shared by claims"},
    )
