"""The mutants that `make mutants` makes: one edit each, and only edits that change what the program does."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "mutants.py"


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", ["x = (a >= b)"]),
        ("x = é == b", ["x = (é != b)"]),
        ("if ready:\n    go()", ["if (not (ready)):\n    go()", "if ready:\n    pass"]),
        ("async def f():\n    await go()", ["async def f():\n    pass"]),
        ("log.warning('x')", []),
        ("if TYPE_CHECKING:\n    x = 1", []),
        ("'''A docstring.'''", []),
    ],
)
def test_edits(mutants: ModuleType, tmp_path: Path, source: str, expected: list[str]) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    room = mutants.Room("room", (), (), strict=False)
    assert sorted(each.applied() for each in mutants.mutants_of(room, path)) == sorted(expected)


def test_every_room_has_sources_and_tests_and_every_mutant_is_python(mutants: ModuleType) -> None:
    rooms, _ = mutants.described()
    for room in rooms:
        assert all(any(mutants.ROOT.glob(pattern)) for pattern in (*room.sources, *room.tests)), room.name
        drawn = mutants.drawn(room, 20, seed=1)
        assert drawn == mutants.drawn(room, 20, seed=1)
        for mutant in drawn:
            ast.parse(mutant.applied())


def test_equivalent_mutants_are_still_in_the_source(mutants: ModuleType) -> None:
    _, equivalent = mutants.described()
    for (file, old), reason in equivalent.items():
        assert old in (mutants.ROOT / file).read_text(), file
        assert reason


def test_defences_name_their_tests(mutants: ModuleType) -> None:
    """`defences` itself refuses an edit whose old text is not in the source once."""
    for each in mutants.defences():
        file, _, name = each.test.partition("::")
        assert f"def {name.split('::')[-1].partition('[')[0]}(" in (mutants.ROOT / file).read_text(), each.test
        ast.parse(each.edit.applied())


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_every_attack_is_noticed_when_its_defence_is_gone(mutants: ModuleType) -> None:
    assert mutants.check_defences("", workers=2, limit_s=300) == 0


@pytest.fixture
def workplace(mutants: ModuleType, tmp_path: Path) -> Any:
    return mutants.Workplace(tmp_path / "place")


@pytest.fixture
def mutant(mutants: ModuleType) -> Any:
    """A real one."""
    room = mutants.Room("room", (), (), strict=False)
    return next(iter(mutants.mutants_of(room, mutants.ROOT / "src/dray/visible_text.py")))


def test_a_test_that_fails_only_with_the_change_kills(workplace: Any, mutant: Any, tmp_path: Path) -> None:
    noticing = tmp_path / "test_noticing.py"
    source = str(workplace.src / "dray/visible_text.py")
    noticing.write_text(f"def test_it():\n    assert {mutant.new!r} not in open({source!r}).read()\n")
    assert "test_noticing.py::test_it" in str(workplace.judge(mutant, [str(noticing)], 60).killed_by)


FAILS_ONCE = """
from pathlib import Path

def test_it():
    mark = Path(__file__).with_suffix(".mark")
    was_here = mark.exists()
    mark.touch()
    assert was_here
"""


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("def test_it():\n    assert False\n", id="fails-always"),
        pytest.param(FAILS_ONCE, id="fails-by-chance"),
        pytest.param("import nothing_of_this_name\n", id="cannot-be-read"),
        pytest.param("def check_it():\n    pass\n", id="has-no-test"),
        pytest.param("import threading\ndef test_it():\n    threading.Event().wait()\n", id="never-ends"),
        pytest.param(None, id="is-not-there"),
    ],
)
def test_what_is_the_same_without_the_change_kills_nothing(
    workplace: Any, mutant: Any, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "test_useless.py"
    if content is not None:
        path.write_text(content)
    assert workplace.judge(mutant, [str(path)], 8).killed_by is None
