"""The checks of `dray driver test`, against the driver as a process with a stand-in card."""

import sys
from pathlib import Path

import pytest
from tests.driver.test_conformance import HELD, problems

PROGRAM = Path(__file__).parent / "standin_driver.py"


@pytest.mark.parametrize("options", ["", pytest.param("--share", marks=pytest.mark.torture)])
async def test_the_driver_conforms(tmp_path, options):
    places = "--kubeconfig {kubeconfig} --node-name {node} --kubelet-root {root} --cdi-dir {cdi}"
    found = await problems(f"{sys.executable} {PROGRAM} {tmp_path / 'host'} {options} {places}")
    assert {check: problem for check, problem in found.items() if problem} in (
        {},
        {HELD: "its devices are shared by claims"},
    )
