"""The documented codes are the codes there are."""

from __future__ import annotations

import re
from pathlib import Path

from dray.explain.reason_codes import CODES

ROOT = Path(__file__).parents[2]


def test_every_reason_code_is_documented() -> None:
    text = (ROOT / "docs" / "explain.md").read_text()
    table = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", text, re.MULTILINE))
    assert {name: meaning.strip() for name, meaning in table.items() if name in CODES} == {
        name: code.meaning for name, code in CODES.items()
    }


def test_every_finding_of_the_doctor_is_documented() -> None:
    text = (ROOT / "docs" / "doctor.md").read_text()
    source = "".join(path.read_text() for path in (ROOT / "src/dray/explain/doctor").glob("*_findings.py"))
    source += (ROOT / "src/dray/cli/doctor.py").read_text()
    codes = re.findall(r'(?:error|warning)\(\s*"([a-z-]+)"', source)
    assert len(set(codes)) >= 20
    assert [code for code in codes if f"`{code}`" not in text] == []
