"""Network namespaces of the real kernel, made for a test and removed after it, and lives of the driver over them."""

import pytest
from tests.driver.net.namespaces import made_host, why_not
from tests.driver.net.pods import WHOLE, Pod

from dray.driver.net import NetDriver


@pytest.fixture(scope="session")
def has_namespaces():
    if missing := why_not():
        pytest.skip(missing)


@pytest.fixture
def host(has_namespaces):
    with made_host() as host:
        yield host


@pytest.fixture
def make_pod(has_namespaces):
    made = []

    def make():
        made.append(Pod())
        return made[-1]

    yield make
    for pod in made:
        pod.end()


@pytest.fixture
def begin(host, tmp_path):
    """A life of the driver; all of them in a test share their data folder, as after a restart."""
    lives = []

    def build(choice=WHOLE):
        driver = NetDriver(choice, host=host.path)
        driver.reports = {}
        driver.report_status = lambda claim, devices: driver.reports.update({claim.uid: list(devices)})
        driver.restore(tmp_path)
        driver.published_pools = tuple(driver.pools("n"))
        lives.append(driver)
        return driver

    yield build
    for key in [path.name for path in (tmp_path / "namespaces").glob("*")]:
        lives[-1]._kept.let_go(key)
