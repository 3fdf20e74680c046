"""Mistakes that driver authors make, each in a driver of its own, and what `dray driver test` says of them."""

import re
import subprocess
import sys

import pytest
from tests.driver.test_conformance import PREPARES, REGISTERS, problems, raw_driver

from dray.driver import Device, DeviceCapacity, DeviceHealth, Driver, Pool
from dray.driver.slices import PoolError, check_pool
from dray.testing import cluster
from dray.testing.driver_checks import check_driver
from dray.testing.driver_process import Target, UnknownTarget
from dray.testing.logged_exceptions import exceptions_in

PUBLISHES = "publishes complete pools"
EVERY_DEVICE = "prepares every device of a claim"
SHARES = "lets claims share a device"
AMOUNTS = "serves the amounts that its request policies allow"
PARTITIONS = "serves partitions of one card side by side"
ADMIN = "gives admin access to a device that another claim holds"
TAINTED = "prepares a tainted device for a claim that tolerates it"
BINDING = "reports the binding conditions of a device"
HEALTH = "reports the health of devices that it publishes"

HEAD = """
from dray.api.quantity import Quantity
from dray.driver import *
from dray.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange

NAME = "mistake.example.com"

def env(device, text="X=1"):
    return PreparedDevice(device, ContainerEdits(env=(text,)))

class Mistaken(Driver):
    name = NAME
    def pools(self, node_name):
        return [Pool(node_name, self.devices(), self.counters())]
    def devices(self):
        return (Device(name="d-0", attributes={"number": DeviceAttribute(int_=0)}), Device(name="d-1"))
    def counters(self):
        return ()
    def prepare(self, claim):
        return [env(device) for device in claim.devices]
"""
TAIL = """
run(Mistaken())
"""

NO_ANSWER = """
    def prepare(self, claim):
        return []
    def health(self):
        return [DeviceHealth("another-pool", "d-9", "Healthy")]
"""
FIRST_ONLY = """
    def prepare(self, claim):
        return [env(claim.devices[0])]
"""
NOTHING = """
    def prepare(self, claim):
        pass
"""
NAMES = """
    def prepare(self, claim):
        return [device.device for device in claim.devices]
"""
RAISES = """
    def prepare(self, claim):
        for device in claim.devices:
            speed = device.config[0].parameters["speed"]
        return []
"""
RAISES_IN_POOLS = """
    def devices(self):
        return (Device(name="d-0", size=7),)
"""
REFUSED_SLICE = """
    def devices(self):
        return (Device(name="GPU_0"),)
"""
SICK = """
    def health(self):
        return [DeviceHealth("conformance", "d-0", "Sick")]
"""
SLOW = """
    def prepare(self, claim):
        import time
        time.sleep(30)
"""
MISSING_FILE = """
    def prepare(self, claim):
        nodes = (DeviceNode(path="/dev/no-such-device"),)
        return [PreparedDevice(device, ContainerEdits(device_nodes=nodes)) for device in claim.devices]
"""
# The second claim of a device takes it away from the first.
NO_SHARES = """
    held = {}
    def devices(self):
        policy = CapacityRequestPolicy(
            default=Quantity.parse("4Gi"),
            valid_range=CapacityRequestPolicyRange(min=Quantity.parse("1Gi"), max=Quantity.parse("8Gi")),
        )
        memory = DeviceCapacity(value=Quantity.parse("16Gi"), request_policy=policy)
        return (Device(name="d-0", capacity={"memory": memory}, allow_multiple_allocations=True),)
    def prepare(self, claim):
        for device in claim.devices:
            if self.held.setdefault(device.device, claim.uid) != claim.uid:
                raise PrepareError(f"{device.device} is in use")
            if device.consumed_capacity["memory"] > Quantity.parse("4Gi"):
                raise PrepareError("at most 4Gi")
        return [env(device) for device in claim.devices]
    def unprepare(self, claim):
        self.held = {name: uid for name, uid in self.held.items() if uid != claim.uid}
"""
# Knows whole cards and no partitions.
NO_PARTITIONS = """
    def devices(self):
        def part(name, size):
            taken = DeviceCounterConsumption(counter_set="card", counters={"memory": Counter(value=Quantity.parse(size))})
            kind = DeviceAttribute(string="card" if name == "card" else "part")
            return Device(name=name, attributes={"type": kind}, consumes_counters=(taken,))
        return (part("card", "8Gi"), part("part-0", "4Gi"), part("part-1", "4Gi"))
    def counters(self):
        return (CounterSet(name="card", counters={"memory": Counter(value=Quantity.parse("8Gi"))}),)
    def prepare(self, claim):
        return [env(device, f"CARD={['card'].index(device.device)}") for device in claim.devices]
"""
NO_ADMINS = """
    def prepare(self, claim):
        if any(device.admin_access for device in claim.devices):
            raise PrepareError("administrators stay outside")
        return [env(device) for device in claim.devices]
"""
STUMBLES_OVER_ADMINS = """
    def prepare(self, claim):
        return [env(device, f"X={1 / (not device.admin_access)}") for device in claim.devices]
"""
SPECIAL_DEVICES = """
    def devices(self):
        return (
            Device(name="d-0"),
            Device(name="d-1", attributes={"broken": DeviceAttribute(bool_=True)}, taints=(DeviceTaint(key="a.com/broken", effect="NoSchedule"),)),
            Device(name="d-2", attributes={"late": DeviceAttribute(bool_=True)}, binding_conditions=("a.com/attached",), binding_failure_conditions=("a.com/lost",)),
        )
    def prepare(self, claim):
        if claim.devices[0].device == "d-1":
            raise PrepareError("it is broken")
        return [env(device) for device in claim.devices]
"""


def driver_file(folder, mistake):
    program = folder / "mistaken.py"
    program.write_text(HEAD + mistake + TAIL)
    return program


def place_of(folder, text, function):
    lines = (folder / "mistaken.py").read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if text in line)
    return f"({folder}/mistaken.py, line {number}, in {function})"


async def found_in(folder, mistake, only, timeout_s=10.0):
    program = driver_file(folder, mistake)
    return {each.check: each async for each in check_driver(Target.parse(str(program)), timeout_s, only)}


# --- a short slice --------------------------------------------------------------------------------------------------------


async def test_an_answer_without_devices_and_the_health_of_unknown_devices_are_found(tmp_path):
    found = await found_in(tmp_path, NO_ANSWER, "t")
    assert "was refused: the driver answered for 0 of 1 devices, without conformance/d-0" in found[PREPARES].problem
    assert found[HEALTH].problem == "in its report another-pool/d-9 is in none of its slices"


async def test_a_refused_slice_is_shown_at_once(tmp_path):
    found = await found_in(tmp_path, REFUSED_SLICE, "", 60.0)
    # It may be refused before the driver has registered: whoever waits then tells it.
    assert list(found) in ([REGISTERS], [REGISTERS, PUBLISHES])
    problem = list(found.values())[-1].problem
    assert 'spec.devices[0].name: Invalid value: "GPU_0": a lowercase RFC 1123 label' in problem
    assert problem.startswith("the API server refuses its slices: ")


@pytest.mark.parametrize("text", ["no_such_driver.py", "no/such/driver.py", "./no-such-driver", "no/such.py --speed 3"])
def test_a_missing_file_is_named(text):
    with pytest.raises(UnknownTarget, match=f"^{text.split()[0]}: no such file$"):
        Target.parse(text)


def test_a_file_may_have_options_of_its_own(tmp_path):
    program = driver_file(tmp_path, "")
    assert Target.parse(f"{program} --fans 3").command == (sys.executable, str(program), "--fans", "3")


def test_a_missing_file_is_wrong_usage():
    command = [sys.executable, "-m", "dray", "driver", "test", "no_such_driver.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("Error: no_such_driver.py: no such file\n")


def test_a_state_of_health_that_does_not_exist_is_refused_where_it_is_made():
    with pytest.raises(ValueError, match="health 'Sick' of device pool/fan-0: must be Healthy, Unhealthy, Unknown"):
        DeviceHealth("pool", "fan-0", "Sick")


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        (["fan-0"], "pool p: its devices must be Device, not str"),
        ([Device(name="a", attributes={"model": "x"})], "attribute model must be a DeviceAttribute, not 'x'"),
        ([Device(name="a", capacity={"memory": "1Gi"})], "capacity memory must be a DeviceCapacity, not '1Gi'"),
        (
            [Device(name="a", capacity={"memory": DeviceCapacity(value="1Gi")})],
            "pool p, device a: capacity memory must be a Quantity: Quantity.parse('1Gi')",
        ),
    ],
)
def test_values_of_other_types_are_refused_in_words(devices, text):
    with pytest.raises(PoolError, match=re.escape(text)):
        check_pool(Pool("p", tuple(devices)))


class NoPools(Driver):
    name = "mistake.example.com"

    def pools(self, node_name):
        return [Device(name="a")]


def test_devices_in_place_of_pools_are_refused_in_words():
    with (
        pytest.raises(PoolError, match=r"pools\(\) of driver mistake.example.com must answer with a list of Pool"),
        cluster(drivers=[NoPools()]),
    ):
        pass


TRACEBACK = """2026-01-01 E dray.driver.prepare: prepare claim default/c: the driver failed
Traceback (most recent call last):
  File "{dray}/driver/prepare.py", line 172, in _prepare_one
    prepared = list(await _call(self._driver.prepare, claim))
  File "/home/me/fan.py", line 31, in prepare
    speed = PARAMETERS[name]
            ~~~~~~~~~~^^^^^^
KeyError: 'speed'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/me/fan.py", line 33, in prepare
    raise Wrong(quantity("x"))
  File "{dray}/api/quantity.py", line 10, in parse
    raise ValueError(text)
my.errors.Wrong: x
2026-01-01 I dray.driver: goes on
  File "/home/me/fan.py", line 3
    def f(
SyntaxError: '(' was never closed
"""


def test_exceptions_are_placed_in_the_authors_own_code():
    import dray

    found = exceptions_in(TRACEBACK.format(dray=dray.__path__[0]))
    assert list(map(str, found)) == [
        "Wrong: x (/home/me/fan.py, line 33, in prepare)",
        "SyntaxError: '(' was never closed (/home/me/fan.py, line 3)",
    ]


# --- all of them ----------------------------------------------------------------------------------------------------------


@pytest.mark.torture
async def test_an_answer_with_fewer_devices_is_found(tmp_path):
    found = await found_in(tmp_path, FIRST_ONLY, "prepares")
    assert "answered for 1 of 2 devices, without conformance/d-1" in found[EVERY_DEVICE].problem


@pytest.mark.torture
async def test_an_exception_is_told_once_with_file_and_line(tmp_path):
    found = await found_in(tmp_path, RAISES, "prepares")
    place = place_of(tmp_path, 'parameters["speed"]', "prepare")
    assert found[PREPARES].problem == f"claim claim-1 was refused: IndexError: tuple index out of range {place}"
    assert found[EVERY_DEVICE].problem == "the same exception as above: IndexError: tuple index out of range"


@pytest.mark.torture
async def test_an_exception_at_the_start_has_file_and_line(tmp_path):
    found = await found_in(tmp_path, RAISES_IN_POOLS, "")
    text = found[REGISTERS].problem
    assert text.startswith("the driver ended with exit code 1: TypeError: ")
    assert text.endswith(place_of(tmp_path, "size=7", "devices"))


@pytest.mark.torture
@pytest.mark.parametrize(
    ("mistake", "check", "text"),
    [
        pytest.param(NOTHING, PREPARES, "the driver answered for 0 of 1 devices", id="none"),
        pytest.param(NAMES, PREPARES, "must answer with a list of PreparedDevice, not of str", id="names"),
        pytest.param(SICK, HEALTH, "must be Healthy, Unhealthy, Unknown (", id="unknown-state"),
        pytest.param(SLOW, PREPARES, "NodePrepareResources gave no answer within 4 s (--timeout)", id="time-limit"),
        pytest.param(MISSING_FILE, PREPARES, "device node /dev/no-such-device does not exist", id="missing-file"),
        pytest.param(NO_SHARES, SHARES, "while another claim uses the device, too: claim", id="shares"),
        pytest.param(NO_SHARES, AMOUNTS, "which asks for memory 8Gi: claim claim-", id="amounts"),
        pytest.param(NO_PARTITIONS, "prepares each of its 2 kinds of devices", "a device like part-0: ", id="kinds"),
        pytest.param(NO_PARTITIONS, PARTITIONS, "ValueError: 'part-0' is not in list (", id="partitions"),
        pytest.param(STUMBLES_OVER_ADMINS, ADMIN, "ZeroDivisionError: division by zero (", id="admin"),
    ],
)
async def test_other_mistakes_are_found(tmp_path, mistake, check, text):
    found = await found_in(tmp_path, mistake, check, 4.0)
    assert text in found[check].problem


@pytest.mark.torture
@pytest.mark.parametrize(
    ("mistake", "check", "text"),
    [
        pytest.param(NO_ADMINS, ADMIN, "it refuses admin access, so that pods with it never start: admin", id="admin"),
        pytest.param(SPECIAL_DEVICES, TAINTED, "refuses tainted device d-1 to a claim that tolerates", id="taint"),
        pytest.param(
            SPECIAL_DEVICES, BINDING, "nobody reported a.com/attached or a.com/lost of device d-2", id="binding"
        ),
    ],
)
async def test_what_kubernetes_allows_is_a_warning(tmp_path, mistake, check, text):
    found = await found_in(tmp_path, mistake, check, 4.0)
    assert found[check].problem == ""
    assert text in found[check].warning


@pytest.mark.torture
@pytest.mark.parametrize(
    ("fault", "check", "text"),
    [
        ("no-devices", PREPARES, "the answer has 0 of the 1 devices that the claim was given, without conformance/d-0"),
        ("other-device", PREPARES, "the answer has device conformance/d-7, which the claim was not given"),
        ("health-state", HEALTH, "conformance/d-0 has state 7, which no kubelet knows"),
        ("health-missing", HEALTH, "it lists v1.DRAResourceHealth and answers UNIMPLEMENTED"),
    ],
)
async def test_faults_that_the_kit_prevents_are_named(fault, check, text):
    found = await problems(raw_driver(fault), 8.0, check)
    assert text in found[check]
