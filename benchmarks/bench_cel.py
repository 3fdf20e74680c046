"""Device selectors: compiling, evaluating, counting, and refusing what costs too much."""

import time

from report import Report

from dray.cel import CelDevice, Environment, Program, compile_selector
from dray.cel.program import _compile
from dray.cel.quantities import parse

DRIVER = "gpu.example.com"
MODEL = f'device.attributes["{DRIVER}"].model == "a100"'
MEMORY = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
THREE_CLAUSES = f'device.driver == "{DRIVER}" && {MODEL} && {MEMORY}'
VERSION = f'device.attributes["{DRIVER}"].firmware.isGreaterThan(semver("1.0.0"))'
LOOKUP = f'device.attributes["{DRIVER}"].?zone.orValue("none") != "closed"'
BOMB = "lists.range(2000).all(x, lists.range(2000).all(y, x + y >= 0))"


def device(number: int) -> CelDevice:
    from dray.api.semver import Semver

    attributes = {"model": "a100" if number % 2 else "h100", "cores": number, "firmware": Semver.parse("2.1.0")}
    return CelDevice(DRIVER, {DRIVER: attributes}, {DRIVER: {"memory": parse("80Gi")}})


def program(text: str) -> Program:
    compiled = compile_selector(text, Environment.devices())
    assert isinstance(compiled, Program)
    return compiled


def run(report: Report) -> None:
    environment = Environment.devices()
    report.measure(
        "parse and check, three clauses", lambda: _compile(THREE_CLAUSES, environment, "bool"), limit_us=1_500
    )
    report.measure("program from the cache", lambda: compile_selector(THREE_CLAUSES, environment))
    selector, one = program(THREE_CLAUSES), device(1)
    assert selector.evaluate(one)
    report.measure("evaluate, three clauses", lambda: selector.evaluate(one), limit_us=1)
    report.measure("evaluate and count, three clauses", lambda: selector.evaluate_with_cost(one), limit_us=12)
    selectors = [program(text) for text in (THREE_CLAUSES, VERSION, LOOKUP)]
    devices = [device(number) for number in range(128)]

    def whole_pool() -> int:
        return sum(all(selector.evaluate(each) for selector in selectors) for each in devices)

    assert whole_pool() == 64
    report.measure(
        "128 devices, 3 selectors",
        lambda: [selector.evaluate(each) for selector in selectors for each in devices],
        limit_us=500,
    )
    started = time.process_time()
    refused = _compile(BOMB, environment, "bool")
    assert isinstance(refused, Program)
    assert refused.estimate > 1_000_000
    report.record("bomb refused at admission", (time.process_time() - started) * 1000, "ms", limit=50)
    started = time.process_time()
    assert program(BOMB).evaluate_with_cost(one).value.cost_exceeded
    report.record("bomb stopped while running", time.process_time() - started, "s", limit=3)
