"""Which part of an expression decided, and the command that shows it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.cel import CelDevice, Environment, Program, compile_selector
from dray.cel.explain import MatchExplanation, explain
from dray.cli.cel import cel
from tests.cel.conftest import spelled_out

SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: slice}
spec:
  driver: gpu.example.com
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  nodeName: node-1
  devices:
  - name: gpu-0
    attributes: {model: {string: a100}, cores: {int: 64}}
    capacity: {memory: {value: 80Gi}}
  - name: gpu-1
    attributes: {model: {string: h100}, cores: {int: 32}}
    capacity: {memory: {value: 40Gi}}
  - name: gpu-2
    attributes: {Model: {string: h100}}
"""


def why(text: str, device: CelDevice) -> str:
    program = compile_selector(spelled_out(text), Environment.devices())
    assert isinstance(program, Program)
    return (
        str(explain(program, device))
        .replace('device.attributes["gpu.example.com"].', "A.")
        .replace('device.capacity["gpu.example.com"].', "C.")
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            'device.driver == "gpu.example.com" && A.model == "h100" && A.cores > 1',
            '`A.model == "h100"` is false: A.model is "a100"',
        ),
        (
            'A.model == "x" || A.cores > 100',
            '`A.model == "x"` is false: A.model is "a100"; `A.cores > 100` is false: A.cores is 64',
        ),
        ('A.model == "x" || A.cores == 64', "`A.cores == 64` is true: A.cores is 64"),
        (
            'C.memory.compareTo(quantity("100Gi")) >= 0',
            '`C.memory.compareTo(quantity("100Gi")) >= 0` is false: C.memory is quantity("80Gi")',
        ),
        ("has(A.nope)", "`has(A.nope)` is false"),
        ("!(A.cores == 64)", "`!(A.cores == 64)` is false: A.cores == 64 is true"),
        ("cel.bind(a, A.names, a.size() == 3)", '`a.size() == 3` is false: a is ["alpha", "beta"]'),
        ("A.ports.all(p, p > 1)", "`p > 1` is false: p is 1"),
        ("A.ready ? A.cores == 1 : true", "`A.cores == 1` is false: A.cores is 64"),
    ],
)
def test_the_deciding_part(device: CelDevice, text: str, reason: str) -> None:
    assert why(text, device) == reason


def test_errors_name_the_part_that_fails_and_the_nearest_name(device: CelDevice) -> None:
    program = compile_selector(spelled_out('A.ready && A.modle == "a100"'), Environment.devices())
    assert isinstance(program, Program)
    explanation = explain(program, device)
    assert explanation.reasons[0].expression == 'device.attributes["gpu.example.com"].modle'
    assert tuple(map(str, explanation.missing)) == (
        'device.attributes["gpu.example.com"].modle is not published; did you mean `model`?',
    )


def test_near_domains(device: CelDevice) -> None:
    program = compile_selector('has(device.attributes["gpu.exmple.com"].model)', Environment.devices())
    assert isinstance(program, Program)
    hint = 'device.attributes["gpu.exmple.com"] is not published; did you mean "gpu.example.com"?'
    assert [str(each) for each in explain(program, device).missing] == [hint]


@pytest.fixture
def slices(tmp_path: Path) -> str:
    path = tmp_path / "slices.yaml"
    path.write_text(SLICE)
    return str(path)


def test_command_lists_matches_misses_errors_and_hints(slices: str) -> None:
    result = CliRunner().invoke(cel, ['device.attributes["gpu.example.com"].model == "a100"', "-f", slices])
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[1].split()[:3] == ["gpu.example.com/node-1/gpu-0", "match", "5"]
    assert 'model is "h100"' in lines[2]
    assert "no such key: model" in lines[3]
    assert lines[4].startswith("hint: ")
    assert "did you mean “Model”?" in lines[4]
    assert lines[5] == "1 of 3 devices match, 1 miss, 1 fail; worst-case cost 5 of 1000000"


@pytest.fixture
def two_drivers(tmp_path: Path) -> str:
    """Eight devices of one driver, and two of another that sorts before it."""
    documents = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"slice-{driver}"},
            "spec": {
                "driver": driver,
                "nodeName": "node-1",
                "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"d-{i}", "attributes": {"rail": {"int": i % 2}}} for i in range(count)],
            },
        }
        for driver, count in (("cpu.example.com", 2), ("nic.example.com", 8))
    ]
    path = tmp_path / "two.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    return str(path)


def said(expression: str, file: str, *options: str) -> list[str]:
    return CliRunner().invoke(cel, [expression, "-f", file, *options]).output.splitlines()


def test_devices_that_fail_alike_share_a_row(two_drivers: str) -> None:
    expression = 'device.attributes["nic.exampel.com"].rail == 1'
    lines = said(expression, two_drivers)
    assert len(lines) == 4
    assert lines[1].startswith("cpu.example.com/node-1/d-0 and 9 more")
    assert len(said(expression, two_drivers, "-o", "wide")) == 13


def test_devices_that_match_have_a_row_each(two_drivers: str) -> None:
    lines = said('device.driver == "nic.example.com" && device.attributes["nic.example.com"].rail == 1', two_drivers)
    assert sum(" match " in line for line in lines) == 4
    assert not any(line.startswith("hint: ") for line in lines)


def test_the_hint_is_the_likeliest_name_of_all_devices(two_drivers: str) -> None:
    (hint,) = [each for each in said('device.attributes["nic.exampel.com"].rail == 1', two_drivers) if "hint" in each]
    assert hint.endswith('is not published; did you mean "nic.example.com"? (10 of 10 devices)')


def test_a_name_that_some_publish_is_no_typing_error(two_drivers: str) -> None:
    (hint,) = [each for each in said('device.attributes["nic.example.com"].rail == 1', two_drivers) if "hint" in each]
    assert hint.startswith('hint: only 8 of 10 devices publish device.attributes["nic.example.com"]; guard it')


def test_command_says_yes(slices: str) -> None:
    result = CliRunner().invoke(cel, ['device.driver == "gpu.example.com"', "-f", slices])
    assert result.exit_code == 0


def test_command_for_programs(slices: str) -> None:
    result = CliRunner().invoke(cel, ["has(device.capacity['gpu.example.com'].memory)", "-f", slices, "-o", "json"])
    document = json.loads(result.output)
    assert result.exit_code == 0
    assert document["summary"] == {"match": 2, "miss": 1, "error": 0}
    assert document["devices"][2]["result"] == "miss"
    assert document["devices"][2]["cost"] == 3


def test_command_refuses_what_does_not_compile(slices: str) -> None:
    result = CliRunner().invoke(cel, ["devise.driver == 'x'", "-f", slices])
    assert result.exit_code == 1
    assert "did you mean “device”?" in result.output


def test_command_warns_of_what_cannot_be_stored(slices: str) -> None:
    result = CliRunner().invoke(cel, ["type(device.driver) == string", "-f", slices])
    assert result.exit_code == 1
    assert "too complex, exceeds cost limit" in result.output


def test_devices_of_one_kind_are_judged_once(two_drivers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counting(program: Program, device: CelDevice) -> MatchExplanation:
        asked.append(device)
        return explain(program, device)

    monkeypatch.setattr("dray.explain.selector_results.explain", counting)
    lines = said('device.driver == "nic.example.com"', two_drivers)
    assert lines[-1].startswith("8 of 10 devices match")
    assert len(asked) == 4
