"""Sockets live in the directories of some tests, and a socket's path may have 107 characters at most."""

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path():
    with tempfile.TemporaryDirectory(prefix="dray-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
