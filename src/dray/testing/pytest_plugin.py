"""The pytest fixture `dray_cluster`: one node with GPUs, shared by the tests of a module."""

from collections.abc import Iterator

import pytest

from dray.testing.cluster import Cluster, cluster


@pytest.fixture(scope="module")
def dray_cluster() -> Iterator[Cluster]:
    with cluster() as running:
        yield running
