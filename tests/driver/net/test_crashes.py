"""The driver is killed at each step of its work; its next life goes on from there, or leaves nothing behind."""

import itertools

import pytest
from tests.driver.net.pods import SHARED, WHOLE, claim_for, device, state_of

from dray.driver.claim_files import ClaimRecords
from dray.driver.net import interfaces
from dray.driver.net.claim_records import InterfaceRecord
from dray.driver.net.namespaces import KeptNamespaces

PARAMETERS = {
    "interface": {"name": "net1", "addresses": ["10.1.0.2/24"], "mtu": 1400, "hardwareAddr": "02:00:00:00:00:77"},
    "routes": [{"destination": "10.2.0.0/16", "gateway": "10.1.0.1"}],
}
CHANGES = ("link", "addr", "route", "tc")


class Killed(BaseException):
    """What no code of a driver catches."""


class Steps:
    """Counts all that the driver changes: files, mounts, and what it asks of the kernel. Kills it before step `last`."""

    def __init__(self, monkeypatch):
        self.done, self.last = 0, None
        monkeypatch.setattr(interfaces, "ask", self._counting(interfaces.ask))
        for owner, name in ((ClaimRecords, "_save"), (KeptNamespaces, "keep"), (KeptNamespaces, "let_go")):
            monkeypatch.setattr(owner, name, self._stepping(getattr(owner, name)))

    def is_killed(self, last, work):
        self.done, self.last = 0, last
        try:
            work()
        except Killed:
            return True
        finally:
            self.last = None
        return False

    def _step(self):
        if self.last == self.done:
            raise Killed
        self.done += 1

    def _stepping(self, function):
        def stepping(*arguments, **named):
            self._step()
            return function(*arguments, **named)

        return stepping

    def _counting(self, ask):
        return lambda namespace, question: ask(namespace, lambda routes: question(_Counted(routes, self._step)))


class _Counted:
    def __init__(self, routes, step):
        self._routes, self._step = routes, step

    def __getattr__(self, name):
        if name in CHANGES:
            self._step()
        return getattr(self._routes, name)


@pytest.fixture
def steps(monkeypatch):
    return Steps(monkeypatch)


@pytest.mark.parametrize(
    ("choice", "is_pod_dead"),
    [
        pytest.param(WHOLE, False, id="whole-pod-lives"),
        pytest.param(WHOLE, True, id="whole-pod-died", marks=pytest.mark.torture),
        pytest.param(SHARED, False, id="share-pod-lives", marks=pytest.mark.torture),
        pytest.param(SHARED, True, id="share-pod-died"),
    ],
)
def test_killed_while_it_brings_an_interface(host, begin, make_pod, steps, tmp_path, choice, is_pod_dead):
    before = state_of(host)
    claim = claim_of(choice)
    for last in itertools.count():
        driver, pod = begin(choice), make_pod()
        driver.prepare(claim)
        killed = steps.is_killed(last, lambda driver=driver, pod=pod: driver.attach(claim.uid, 0, pod.pid))
        if is_pod_dead:
            pod.end()
        else:
            begin(choice).attach(claim.uid, 0, pod.pid)
            assert "inet 10.1.0.2/24" in pod.ip("addr", "show", "net1"), f"step {last}"
        begin(choice).unprepare(claim.reference)
        assert_nothing_is_left(host, before, tmp_path, f"step {last}")
        if not killed:
            break
    assert last > 8, "there are that many steps"


@pytest.mark.parametrize(
    ("choice", "is_pod_dead"),
    [
        pytest.param(WHOLE, False, id="whole-pod-lives", marks=pytest.mark.torture),
        pytest.param(WHOLE, True, id="whole-pod-died"),
        pytest.param(SHARED, False, id="share-pod-lives"),
        pytest.param(SHARED, True, id="share-pod-died", marks=pytest.mark.torture),
    ],
)
def test_killed_while_it_fetches_an_interface_back(host, begin, make_pod, steps, tmp_path, choice, is_pod_dead):
    before = state_of(host)
    claim = claim_of(choice)
    for last in itertools.count():
        driver, pod = begin(choice), make_pod()
        driver.prepare(claim)
        driver.attach(claim.uid, 0, pod.pid)
        if is_pod_dead:
            pod.end()
        killed = steps.is_killed(last, lambda driver=driver: driver.unprepare(claim.reference))
        begin(choice).unprepare(claim.reference)
        assert_nothing_is_left(host, before, tmp_path, f"step {last}")
        if not killed:
            break
    assert last > 1, "there are that many steps"


def claim_of(choice):
    shared = {"bandwidth": "10M", "share": "s"} if choice == SHARED else {}
    return claim_for(device("eth2", PARAMETERS, **shared))


def assert_nothing_is_left(host, before, folder, when):
    assert state_of(host) == before, when
    assert not list((folder / "namespaces").glob("*")), when
    assert not ClaimRecords(folder / "claims.json", InterfaceRecord).records(), when
