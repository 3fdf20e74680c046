"""The lock file names every package that comes with Dray, and installs nothing that was changed."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def lock() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lock", ROOT / "scripts" / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lock_meets_every_requirement(lock: ModuleType) -> None:
    assert lock.problems() == []


def test_a_lock_that_is_out_of_date_is_noticed(
    lock: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = lock.LOCK.read_text().splitlines()
    digest = "0" * 64
    changed = [line for line in lines if not line.startswith(("click==", "grpcio=="))]
    changed += [f"grpcio==1.0.0 --hash=sha256:{digest}", f"leftpad==1.0 --hash=sha256:{digest}"]
    (tmp_path / "requirements.lock").write_text("\n".join(changed) + "\n")
    monkeypatch.setattr(lock, "LOCK", tmp_path / "requirements.lock")
    found = "\n".join(lock.problems())
    assert "click" in found
    assert "grpcio" in found
    assert "leftpad is locked, and nothing needs it" in found


def test_a_line_without_a_digest_is_refused(lock: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "requirements.lock").write_text("click==8.1.0\n")
    monkeypatch.setattr(lock, "LOCK", tmp_path / "requirements.lock")
    with pytest.raises(SystemExit, match="not an entry"):
        lock.locked(lock.LOCK, lock.ENTRY)


def test_tests_run_with_the_versions_that_users_get_and_every_tool_is_locked(lock: ModuleType) -> None:
    assert lock.problems_of_development() == []


def test_a_tool_that_is_not_locked_and_another_version_than_users_have_are_noticed(
    lock: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [line for line in lock.DEV_LOCK.read_text().splitlines() if not line.startswith(("mypy==", "click=="))]
    (tmp_path / "requirements-dev.lock").write_text("\n".join([*lines, "click==8.0.0"]) + "\n")
    monkeypatch.setattr(lock, "DEV_LOCK", tmp_path / "requirements-dev.lock")
    found = "\n".join(lock.problems_of_development())
    assert "needs mypy" in found
    assert "click is 8.0.0" in found
