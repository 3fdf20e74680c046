"""Fixtures of all tests."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _state_home(tmp_path_factory):
    """Clusters of `dray up` are listed in a folder of the test run, not in the user's."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture
async def rig(request, tmp_path):
    """The part of Dray that a test module is about, running: the module names it as `RIG`."""
    async with request.module.RIG(tmp_path) as rig:
        yield rig
