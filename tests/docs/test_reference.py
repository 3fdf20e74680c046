"""The reference pages are what the code says, and nothing that users meet is missing from the documentation."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SOURCES = sorted((ROOT / "src" / "dray").rglob("*.py"))
REGISTERING = {"counter", "gauge", "histogram", "computed_gauge", "computed_counter"}


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_reference_pages_are_current():
    """In a process of its own: click remembers in each command the help options of whoever asked it first."""
    command = [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_metric_in_the_code_is_in_the_reference():
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    names = {name for file in SOURCES for name in metric_names(ast.parse(file.read_text()))}
    assert len(names) > 30
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def metric_names(tree):
    """Names that are registered, given as text or as a constant of the same module."""
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REGISTERING:
            first = node.args[0]
            yield constants[first.id] if isinstance(first, ast.Name) else first.value


def test_every_command_and_gate_is_documented_and_every_link_leads_somewhere():
    check = script("check_docs")
    assert check.broken_links() + check.undocumented() == []
