"""What objects, manifests and servers contain cannot steer the terminal of whoever looks at them."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import subprocess
import sys
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from dray.cli.main import main
from dray.telemetry import set_up_logging
from dray.visible_text import visible, visible_on_one_line

# Title and clipboard of the terminal, the same with C1, the direction of writing, a carriage return, no width, a faked line.
HOSTILE = "x\x1b]0;owned\x07\x9b31m\u202egpj\u2066\r\x08\u200b\nnothing looks wrong (9 objects)\ttab"
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def hostile_cluster() -> list[dict[str, Any]]:
    """Objects in which every text that nobody checks says something hostile; a dump may come from anywhere."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n1{HOSTILE}", "labels": {"l": HOSTILE}},
        "spec": {"taints": [{"key": HOSTILE, "value": HOSTILE, "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}},
    }
    device = {
        "name": f"gpu{HOSTILE}",
        "attributes": {"model": {"string": HOSTILE}},
        "taints": [{"key": "k", "value": HOSTILE, "effect": "NoSchedule"}],
    }
    slices = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"s{HOSTILE}"},
        "spec": {
            "driver": f"d{HOSTILE}",
            "nodeName": f"n1{HOSTILE}",
            "pool": {"name": HOSTILE, "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        },
    }
    request = {
        "name": "r",
        "exactly": {
            "deviceClassName": HOSTILE,
            "selectors": [{"cel": {"expression": f'"{HOSTILE}" == device.driver'}}],
        },
    }
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"c{HOSTILE}", "namespace": f"default{HOSTILE}", "finalizers": [HOSTILE]},
        "spec": {"devices": {"requests": [request]}},
        "status": {
            "allocation": {
                "devices": {"results": [{"request": "r", "driver": HOSTILE, "pool": HOSTILE, "device": HOSTILE}]}
            },
            "reservedFor": [{"resource": "pods", "name": HOSTILE, "uid": HOSTILE}],
        },
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": HOSTILE},
        "spec": {
            "schedulerName": HOSTILE,
            "nodeSelector": {HOSTILE: HOSTILE},
            "containers": [{"name": HOSTILE, "image": HOSTILE}],
            "resourceClaims": [{"name": "c", "resourceClaimName": f"c{HOSTILE}"}],
        },
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": HOSTILE}]},
    }
    waiting = {**pod, "metadata": {"name": f"p{HOSTILE}", "namespace": "default"}}
    return [node, slices, claim, pod, waiting]


def accepted_cluster() -> list[dict[str, Any]]:
    """What a server accepts: texts without rules for their characters are attributes, and literals of expressions."""
    short = HOSTILE[:46]
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}},
    }
    slices = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.example.com",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": {"model": {"string": short}}}],
        },
    }
    expression = f'device.attributes["d.example.com"].model == {json.dumps("not " + HOSTILE, ensure_ascii=False)}'
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }
    classes = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "containers": [{"name": "main", "image": "i", "resources": {"claims": [{"name": "c"}]}}],
            "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
        },
    }
    return [node, slices, classes, claim, pod]


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("accepted") / "dump.yaml"
    file.write_text(yaml.safe_dump_all(accepted_cluster()))
    return file


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("dump") / "dump.yaml"
    file.write_text(yaml.safe_dump_all(hostile_cluster()))
    return file


@dataclass(frozen=True)
class Printed:
    out: str
    err: str

    @property
    def hidden(self) -> list[str]:
        return [repr(found) for found in HIDDEN.findall(self.out + self.err)]


class Dray:
    """Runs the command as the console script does, in this process."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def __call__(self, *arguments: str) -> Printed:
        out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
        with self._patch.context() as patch:
            patch.setattr(sys, "argv", ["dray", *arguments])
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            with pytest.raises(SystemExit):
                main()
            texts = []
            for stream in (out, err):
                stream.flush()
                texts.append(cast(io.BytesIO, stream.buffer).getvalue().decode())
        return Printed(*texts)


@pytest.fixture
def dray(monkeypatch: pytest.MonkeyPatch) -> Dray:
    monkeypatch.setattr("dray.cli.main.as_usual", lambda: None)
    return Dray(monkeypatch)


@pytest.mark.parametrize(
    "arguments",
    [
        ["devices"],
        ["devices", "-o", "wide"],
        ["devices", "-o", "json"],
        ["devices", "-o", "yaml"],
        ["explain", "pod/p"],
        ["explain", "pod/p", "-o", "wide"],
        ["explain", "pod/p", "-o", "json"],
        ["doctor"],
        ["doctor", "-o", "json"],
        ["ledger"],
        ["ledger", "-o", "wide"],
        ["ledger", "-o", "json"],
        ["top", "--once"],
        ["simulate"],
        ["simulate", "-o", "json"],
        ["lint"],
        ["lint", "-o", "json"],
        ["cel", f'device.attributes["{HOSTILE}"].model == "x"'],
        ["cel", "true"],
    ],
    ids=lambda arguments: " ".join(arguments)[:24].encode("ascii", "replace").decode().split("\x1b")[0],
)
def test_no_command_prints_hidden_characters(dray: Dray, dump: Path, arguments: list[str]) -> None:
    printed = dray(*arguments, "-f", str(dump))
    assert "owned" in printed.out + printed.err, "the hostile text must be part of what is printed"
    assert printed.hidden == []
    if "json" in arguments and printed.out:
        assert "owned" in str(json.loads(printed.out))
    if "-o" not in arguments or "wide" in arguments:
        # No field begins a line of its own.
        assert not any(line.startswith("nothing looks wrong") for line in printed.out.splitlines())


def test_mistakes_are_reported_visibly(dray: Dray, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(f'kind: "{visible_on_one_line(HOSTILE)}"\napiVersion: v1\n')
    for arguments in (
        ["lint", "-f", str(tmp_path / "bad.yaml")],
        ["devices", "-f", str(tmp_path / f"absent{HOSTILE}")],
        ["devices", f"--{HOSTILE}"],
        ["cel", HOSTILE, "-f", str(tmp_path / "bad.yaml")],
    ):
        printed = dray(*arguments)
        assert printed.out + printed.err
        assert printed.hidden == []


def test_colours_of_our_own_still_reach_a_terminal(dump: Path) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as reading:
        process = subprocess.Popen(
            [sys.executable, "-m", "dray", "doctor", "-f", str(dump)], stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        shown = b""
        try:
            while piece := reading.read(65536):
                shown += piece
        except OSError:  # the other side has closed
            pass
        process.wait()
    text = shown.decode().replace("\r\n", "\n")
    assert "\x1b[31merror\x1b[0m: " in text or "\x1b[33mwarning\x1b[0m: " in text
    without_colours = re.sub("\x1b\\[(31|33|0)m", "", text)
    assert HIDDEN.findall(without_colours) == []


def test_log_lines_stay_lines() -> None:
    stream = io.StringIO()
    set_up_logging(stream=stream)
    try:
        logging.getLogger("dray.test").info("driver %s says %s", "gpu", HOSTILE)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            logging.getLogger("dray.test").exception("broken")
    finally:
        logging.getLogger("dray").handlers.clear()
    first, rest = stream.getvalue().split("\n", 1)
    assert first.endswith(visible_on_one_line(HOSTILE))
    assert HIDDEN.findall(rest) == []


def test_every_control_and_direction_mark_is_hidden() -> None:
    """The table of the module against Unicode's own: controls, separators, bidi classes that are marks."""
    marks = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "BN"}
    passed_on = [
        hex(code)
        for code in range(0x110000)
        if chr(code) not in "\t\n"
        and (
            unicodedata.category(chr(code)) in ("Cc", "Zl", "Zp", "Cs")
            or (unicodedata.bidirectional(chr(code)) in marks and unicodedata.category(chr(code)) == "Cf")
            or chr(code) in "\u200e\u200f\u061c"
        )
        and visible(chr(code)) == chr(code)
    ]
    # Musical and shorthand format controls have no direction and change only the characters beside them.
    assert [code for code in passed_on if not 0x1BCA0 <= int(code, 16) <= 0x1D17A] == []


@pytest.mark.parametrize("text", ["plain", "déjà vu ☃", "日本語", "a\tb\nc"])
def test_other_text_stays(text: str) -> None:
    assert visible(text) == text


def test_escapes_are_those_of_json() -> None:
    for text in (HOSTILE, "\U000e0041\x9f"):
        assert json.loads(f'"{visible_on_one_line(text)}"') == text


@pytest.mark.parametrize(
    "arguments",
    [["explain", "pod/p"], ["explain", "pod/p", "-o", "json"], ["cel", 'device.attributes["d.example.com"].model']],
    ids=["explain", "explain-json", "cel"],
)
def test_explanations_of_accepted_objects_are_visible(dray: Dray, accepted: Path, arguments: list[str]) -> None:
    printed = dray(*arguments, "-f", str(accepted))
    assert "owned" in printed.out + printed.err
    assert printed.hidden == []
    assert not any(line.startswith("nothing looks wrong") for line in printed.out.splitlines())


def test_the_report_of_a_simulation_has_no_hidden_characters(dray: Dray, accepted: Path, tmp_path: Path) -> None:
    dray("simulate", "-f", str(accepted), "--report", str(tmp_path / "report.html"))
    assert HIDDEN.findall((tmp_path / "report.html").read_text()) == []
