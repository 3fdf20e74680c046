"""Fixtures of these tests."""

import pytest
from tests.short_paths import tmp_path as tmp_path

from dray.client import NODES
from dray.sim.control_plane import ControlPlane, ControlPlaneOptions


@pytest.fixture
async def plane(tmp_path):
    """An API server with the node n1, and nobody else."""
    plane = ControlPlane(ControlPlaneOptions(tmp_path / "data", with_controllers=False, with_scheduler=False))
    await plane.start()
    await plane.client("test").create(NODES, {"metadata": {"name": "n1"}})
    yield plane
    await plane.stop()
