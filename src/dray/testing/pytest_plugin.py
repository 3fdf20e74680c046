"""Fixtures for tests that need a cluster; pytest finds them by itself where Dray is installed.

`dray_cluster` is one cluster for the tests of a module: one node with GPUs, or what the mark `dray_cluster` or a parameter says.
`dray_namespace` is a namespace of its own for each test, in that cluster. `make_dray_cluster` starts clusters for one test.
Nothing of Dray is imported until a test asks for one of them.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dray.testing.running_cluster import Cluster

MARK = "dray_cluster(**options): what the module's cluster is made of, as for `dray.testing.cluster`"
_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)


@pytest.fixture(scope="module")
def dray_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster for the tests of a module, made with the options of the mark `dray_cluster` and of an indirect parameter."""
    from dray.testing.running_cluster import cluster

    mark = request.node.get_closest_marker("dray_cluster")
    options = {**(mark.kwargs if mark is not None else {}), **getattr(request, "param", {})}
    with cluster(**options) as running:
        yield running


@pytest.fixture
def dray_namespace(dray_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace in the module's cluster for one test; what the test left in it is deleted with it."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    name = dray_cluster.make_namespace(f"{words}-{next(_numbers)}")
    yield name
    dray_cluster.delete(f"namespace/{name}")


@pytest.fixture
def make_dray_cluster() -> Iterator[Callable[..., Cluster]]:
    """A function that starts a cluster as `dray.testing.cluster` does; they end with the test."""
    from dray.testing.running_cluster import cluster

    with contextlib.ExitStack() as clusters:
        yield lambda *nodes, **options: clusters.enter_context(cluster(*nodes, **options))
