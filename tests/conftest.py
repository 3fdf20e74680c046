"""Fixtures of all tests."""

import pytest


@pytest.fixture
async def rig(request, tmp_path):
    """The part of Dray that a test module is about, running: the module names it as `RIG`."""
    async with request.module.RIG(tmp_path) as rig:
        yield rig
