"""The checks of `dray driver test`, against the drivers as processes on a made-up machine."""

import sys
from pathlib import Path

import pytest
from tests.driver.test_conformance import HELD, problems

PROGRAM = Path(__file__).parent / "made_up_machine.py"
torture = pytest.mark.torture


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("cpu", "--cpu-device-mode individual"),
        pytest.param("cpu", "--group-by core", marks=torture),
        pytest.param("memory", "", marks=torture),
    ],
)
async def test_the_driver_conforms(tmp_path, kind, options):
    places = "--kubeconfig {kubeconfig} --node-name {node} --kubelet-root {root} --cdi-dir {cdi}"
    found = await problems(f"{sys.executable} {PROGRAM} {kind} {tmp_path / 'sys'} {options} {places}")
    assert {check: problem for check, problem in found.items() if problem} in (
        {},
        {HELD: "its devices are shared by claims"},
    )
