"""Who gets in, and what goes out: without the token there is no data."""

import asyncio
import http.client
import re
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from dray.dashboard import Dashboard, dashboard_url, new_token
from dray.dashboard.access import DashboardAccess, is_on_this_machine
from dray.http.connection import HttpRequest, Peer
from dray.sim.pod_explanation import explain_live_pods
from dray.testing import cluster
from tests.dashboard.conftest import Shown, shown_on


@pytest.fixture(scope="module")
def bare() -> Iterator[Shown]:
    with cluster(nodes=1, devices=("gpu",)) as running, shown_on(running) as shown:
        yield shown


def ask(shown: Shown, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    where = urlsplit(shown.cluster.url)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(where.hostname or "", where.port, context=context, timeout=20)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


PATHS = [
    "/ui",
    "/ui/",
    "/ui/app.js",
    "/ui/api/snapshot",
    "/ui/api/events",
    "/ui/api/explain?pod=default/x",
    "/ui/nothing",
]


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_there_is_nothing(bare: Shown, path: str) -> None:
    status, _, body = ask(bare, path)
    assert status == 401
    assert b"node-1" not in body


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Authorization": "Bearer wrong"}, id="wrong-bearer"),
        pytest.param({"Authorization": "Basic {token}"}, id="other-scheme"),
        pytest.param({"Cookie": "{cookie}=wrong"}, id="wrong-cookie"),
        pytest.param({"Cookie": "{cookie}={token}"}, id="the-token-is-not-the-cookie"),
        pytest.param({"Cookie": '[={};"=;;x'}, id="garbage-cookie"),
    ],
)
def test_wrong_credentials_are_refused(bare: Shown, headers: dict[str, str]) -> None:
    names = {"token": bare.token, "cookie": DashboardAccess(bare.token).cookie_name}
    filled = {name: value.replace("{token}", names["token"]) for name, value in headers.items()}
    filled = {name: value.replace("{cookie}", names["cookie"]) for name, value in filled.items()}
    assert ask(bare, "/ui/api/snapshot", **filled)[0] == 401


def test_a_wrong_token_in_the_address_is_refused(bare: Shown) -> None:
    status, headers, _ = ask(bare, "/ui?token=wrong")
    assert status == 401
    assert "set-cookie" not in headers


def test_people_are_told_what_to_do(bare: Shown) -> None:
    status, headers, body = ask(bare, "/ui/", Accept="text/html")
    assert status == 401
    assert headers["content-type"].startswith("text/html")
    assert b"Open the address that the command printed" in body


def test_the_token_becomes_a_cookie_that_scripts_cannot_read(bare: Shown) -> None:
    status, headers, _ = ask(bare, f"/ui?token={bare.token}")
    assert (status, headers["location"]) == (303, "/ui/")
    cookie = headers["set-cookie"]
    assert {"HttpOnly", "Secure", "SameSite=Lax", "Path=/ui"} <= set(cookie.split("; "))
    assert bare.token not in cookie
    # Other servers on this machine leave strange cookies, which the browser sends along.
    status, headers, body = ask(bare, "/ui/", Cookie=f'a[b]="c; {cookie.partition(";")[0]}; d')
    assert status == 200
    assert b"<title>Dray</title>" in body
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"


def test_programs_send_the_token_as_bearer(bare: Shown) -> None:
    status, headers, body = ask(bare, "/ui/api/snapshot", Authorization=f"Bearer {bare.token}")
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert b'"node-1"' in body


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_written(bare: Shown, method: str) -> None:
    assert ask(bare, "/ui/api/snapshot", method, Authorization=f"Bearer {bare.token}")[0] == 405


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ui/../healthz", 404),
        ("/ui/__init__.py", 404),
        ("/ui/api/nothing", 404),
        ("/ui/api/why?node=nowhere", 404),
        ("/ui/api/devices?pool=nothing", 404),
        ("/ui/api/explain?pod=default/nothing", 404),
        ("/ui/api/explain", 404),
    ],
)
def test_what_does_not_exist_is_said_so(bare: Shown, path: str, status: int) -> None:
    found, _, body = ask(bare, path, Authorization=f"Bearer {bare.token}")
    assert found == status
    assert body


def test_the_api_beside_it_is_untouched(bare: Shown) -> None:
    assert ask(bare, "/uix")[0] in (401, 403)
    assert ask(bare, "/healthz")[0] == 200


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.7", False),
        ("::ffff:10.0.0.7", False),
        ("fe80::1%eth0", False),
        ("", False),
        ("localhost.example.com", False),
    ],
)
def test_on_this_machine(address: str, expected: bool) -> None:
    assert is_on_this_machine(address) is expected


def test_other_machines_are_turned_away_even_with_the_token(bare: Shown) -> None:
    request = HttpRequest(
        "GET",
        f"/ui/api/snapshot?token={bare.token}".encode(),
        {"authorization": f"Bearer {bare.token}"},
        peer=Peer(remote="10.0.0.7"),
    )
    response = asyncio.run(Dashboard(bare.cluster.client, bare.token, explain=explain_live_pods)(request))
    assert response.status == 403


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch(r"[\w-]{32}", token) for token in tokens)
    with pytest.raises(ValueError, match="fewer than 16 characters"):
        DashboardAccess("short")


def test_two_dashboards_on_one_machine_do_not_share_a_cookie() -> None:
    assert DashboardAccess(new_token()).cookie_name != DashboardAccess(new_token()).cookie_name


def test_a_server_that_listens_everywhere_prints_an_address_of_this_machine() -> None:
    assert dashboard_url("https://0.0.0.0:6443", "t") == "https://127.0.0.1:6443/ui?token=t"
    assert dashboard_url("https://[::]:6443", "t") == "https://[::1]:6443/ui?token=t"
