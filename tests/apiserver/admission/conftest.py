"""Every test gets a world of its own: a namespace, a service account, all plugins."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.apiserver.admission.world import World, open_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = await open_world(tmp_path)
    yield world
    await world.stop()
