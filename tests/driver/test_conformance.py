"""`dray driver test`: drivers that conform, and what is said of those that do not."""

import subprocess
import sys
from pathlib import Path

import pytest

from dray.testing.driver_checks import CHECKS, check_driver
from dray.testing.driver_process import Target, UnknownTarget

FAN = Path(__file__).parent.parent.parent / "examples/driver/fan_driver.py"

FORGETFUL = '''
"""Forgets what it prepared, never cleans up, and prepares what it was not given."""
import itertools, sys
sys.path.insert(0, {folder!r})
from fan_driver import FanDriver
from dray.driver import run
from dray.driver.checkpoint import Checkpoint
from dray.driver.cdi import CdiFiles
numbers = itertools.count()
Checkpoint.get = lambda self, uid: None
Checkpoint.holder_of = lambda self, pool, device, besides: None
CdiFiles.remove = lambda self, uid: None
class Forgetful(FanDriver):
    def prepare(self, claim):
        from dray.driver import ContainerEdits, PreparedDevice
        return [PreparedDevice(d, ContainerEdits(env=("N=1",)), (f"fan.example.com/other=x{{next(numbers)}}",)) for d in claim.devices]
run(Forgetful())
'''


async def problems(target: str, timeout_s: float = 30.0) -> dict[str, str]:
    return {each.check: each.problem or each.skipped async for each in check_driver(Target.parse(target), timeout_s)}


@pytest.mark.parametrize(
    "target",
    [
        str(FAN),
        "cpu",
        pytest.param("gpu", marks=pytest.mark.torture),
        pytest.param("nic", marks=pytest.mark.torture),
        pytest.param("gpu-shared", marks=pytest.mark.torture),
    ],
)
async def test_drivers_that_come_with_dray_conform(target):
    found = await problems(target)
    assert {check: problem for check, problem in found.items() if problem} == {}
    assert len(found) == len(CHECKS)


async def test_a_driver_that_never_registers_is_told_so():
    found = await problems("sh -c 'exec sleep 60' {node}", 1.0)
    assert found == {
        "registers with the kubelet": "waited 1 s for the driver to register in plugins_registry and to serve its endpoint"
    }


async def test_a_driver_that_ends_is_told_with_its_last_words():
    found = await problems(f"{sys.executable} -c \"print('no cards here'); raise SystemExit(7)\" {{node}}")
    assert "exit code 7: no cards here" in found["registers with the kubelet"]


async def test_a_forgetful_driver_is_found_out(tmp_path):
    program = tmp_path / "forgetful.py"
    program.write_text(FORGETFUL.format(folder=str(FAN.parent)))
    found = await problems(str(program), 20.0)
    failed = {check for check, problem in found.items() if problem}
    assert "registers with the kubelet" not in failed
    assert failed >= {
        "prepares a claim, and containers can use the answer",
        "answers the same when asked again",
        "gives a claim back, also twice, also an unknown one",
    }


@pytest.mark.parametrize("text", ["", "no such command --x", "no/such/file.py"])
def test_what_cannot_be_started_is_wrong_usage(text):
    with pytest.raises(UnknownTarget):
        Target.parse(text)


def test_a_command_gets_paths_where_it_wants_them(tmp_path):
    target = Target.parse("env KUBELET={root} true --config={kubeconfig}")
    assert target.arguments(Path("/k"), "n", Path("/r"), Path("/c")) == ["env", "KUBELET=/r", "true", "--config=/k"]
    assert Target.parse("true").arguments(Path("/k"), "n", Path("/r"), Path("/c"))[1:3] == ["--kubeconfig", "/k"]


def test_the_command_reports_and_exits_with_one():
    done = subprocess.run(
        [sys.executable, "-m", "dray", "driver", "test", "true", "--timeout", "5"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL registers with the kubelet\n     the driver ended with exit code 0")
    usage = subprocess.run(
        [sys.executable, "-m", "dray", "driver", "test", "no/such.py"], capture_output=True, text=True
    )
    assert usage.returncode == 2
