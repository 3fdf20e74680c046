"""Sockets live in these tests' directories, and a socket's path may have 107 characters at most."""

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path():
    with tempfile.TemporaryDirectory(prefix="dray-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
async def rig(request, tmp_path):
    """The part of a kubelet that a test module is about: it names the rig as `RIG`."""
    async with request.module.RIG(tmp_path) as rig:
        yield rig
