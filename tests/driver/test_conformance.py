"""`dray driver test`: drivers that conform, and what is said of those that do not."""

import subprocess
import sys
from pathlib import Path

import pytest

from dray.testing.driver_checks import CHECKS, FIRST_CHECKS, LAST_CHECKS, check_driver
from dray.testing.driver_process import Target, UnknownTarget

FAN = Path(__file__).parent.parent.parent / "examples/driver/fan_driver.py"

FORGETFUL = '''
"""Forgets what it prepared, never cleans up, and prepares what it was not given."""
import itertools, sys
sys.path.insert(0, {folder!r})
from fan_driver import FanDriver
from dray.driver import run
from dray.driver.claim_files import Checkpoint
from dray.driver.claim_files import CdiFiles
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


async def problems(target: str, timeout_s: float = 30.0, only: str = "") -> dict[str, str]:
    return {
        each.check: each.problem or each.skipped or each.warning
        async for each in check_driver(Target.parse(target), timeout_s, only)
    }


@pytest.mark.parametrize(
    "target",
    [
        str(FAN),
        pytest.param("gpu", marks=pytest.mark.torture),
        pytest.param("nic", marks=pytest.mark.torture),
        pytest.param("gpu-shared", marks=pytest.mark.torture),
    ],
)
async def test_drivers_that_come_with_dray_conform(target):
    found = await problems(target)
    assert {check: problem for check, problem in found.items() if problem} in (
        {},
        {HELD: "its devices are shared by claims"},
    )
    assert len(found) > len((*FIRST_CHECKS, *CHECKS, *LAST_CHECKS)), "and those of features"


async def test_a_driver_that_never_registers_is_told_so():
    found = await problems("sh -c 'exec sleep 60' {node}", 1.0)
    assert found == {
        "registers with the kubelet": "waited 1 s (--timeout) for the driver to register in plugins_registry and to serve its "
        "endpoint: no socket is there"
    }


async def test_a_driver_that_ends_is_told_with_its_last_words():
    found = await problems(f"{sys.executable} -c \"print('no cards here'); raise SystemExit(7)\" {{node}}")
    assert "exit code 7: no cards here" in found["registers with the kubelet"]


@pytest.mark.torture
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


REGISTERS = "registers with the kubelet"
PREPARES = "prepares a claim, and containers can use the answer"
AGAIN = "answers the same when asked again"
GIVES_BACK = "gives a claim back, also twice, also an unknown one"
MISSING = "refuses a device that it does not publish"
HELD = "refuses a device that another claim holds"
ENDS = "ends on SIGTERM and takes its sockets along"


def raw_driver(*faults: str) -> str:
    return f"{sys.executable} {Path(__file__).parent / 'raw_driver.py'} {','.join(faults) or 'none'}"


@pytest.mark.torture
async def test_a_driver_without_the_kit_can_conform():
    found = await problems(raw_driver())
    assert {check: problem for check, problem in found.items() if problem} == {}


async def test_each_fault_of_a_bad_driver_is_named():
    found = await problems(raw_driver("empty-cdi", "twice", "invents", "leaves-files", "exit-code"))
    assert "unresolvable CDI devices raw.example.com/dev=" in found[PREPARES]
    assert "; CDI file raw-" in found[PREPARES], "and why the file does not count"
    assert "/d-0 was prepared for claim-" in found[HELD]
    assert "a claim with a device that the driver does not publish was prepared: " in found[MISSING]
    assert found[GIVES_BACK].startswith("CDI files stay behind: ['raw-")
    assert found[ENDS].startswith("it ends with exit code 5 after SIGTERM")
    assert found[AGAIN] == ""


@pytest.mark.torture
async def test_a_driver_that_crashes_is_started_again_for_the_next_check():
    found = await problems(raw_driver("crash"))
    assert found[PREPARES].endswith("the driver ended with exit code 139: segmentation fault")
    assert found[AGAIN].endswith("the driver ended with exit code 139: segmentation fault")
    assert "no reason to crash" in found["refuses a claim that does not exist"]
    assert found[ENDS] == ""


@pytest.mark.parametrize(
    ("fault", "check", "text"),
    [
        pytest.param(
            "get-info", REGISTERS, "raw.example.com-reg.sock: INTERNAL: out of memory", marks=pytest.mark.torture
        ),
        pytest.param("type", REGISTERS, "no handler registered for plugin type: CSIPlugin", marks=pytest.mark.torture),
        ("name", REGISTERS, "invalid DRA driver plugin name 'Raw_Driver'"),
        ("endpoint", REGISTERS, "raw.example.com is registered, and nobody listens at"),
        pytest.param("versions", REGISTERS, "empty list of supported gRPC services", marks=pytest.mark.torture),
        ("incomplete", "publishes complete pools", "pool conformance: 1 of 2 slices of generation 1 are there"),
    ],
)
async def test_a_driver_that_does_not_get_far_is_told_why(fault, check, text):
    found = await problems(raw_driver(fault), 5.0)
    assert text in found[check]
    assert list(found)[-1] == check, "the rest is left out"


@pytest.mark.torture
@pytest.mark.parametrize(
    ("fault", "check", "text"),
    [
        ("no-owner", "publishes complete pools", "is not owned by its node, and would outlive it"),
        ("hang", PREPARES, "NodePrepareResources gave no answer within 8 s (--timeout)"),
        ("no-answer", PREPARES, "the answer has no entry for claim claim-1"),
        ("no-answer", "refuses a claim that does not exist", "has no entry in the answer"),
        (
            "replaced",
            "refuses a claim that was replaced",
            "a claim whose UID is another was prepared: conformance/d-0 as",
        ),
        ("forgets", HELD, "was prepared for claim-"),
        ("differs", AGAIN, "the second answer differs: conformance/d-0 as raw.example.com/dev="),
        ("request", PREPARES, "said to be for request wrong; the claim was given it for request device"),
        ("no-cdi", PREPARES, "unresolvable CDI devices"),
        ("unknown", GIVES_BACK, "was not given back: no such claim"),
        ("needs-claim", HELD, "was not given back: resourceclaims.resource.k8s.io"),
        ("rewrites", "writes no slice when nothing changed", "rewrote slices"),
        ("deaf", ENDS, "it does not end after SIGTERM"),
        ("deletes", ENDS, "it deletes its ResourceSlices when it ends"),
    ],
)
async def test_other_faults_are_named(fault, check, text):
    found = await problems(raw_driver(fault), 8.0, check)
    assert text in found[check]


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
