"""Brings interfaces into the network namespaces of pods, and back.

Every function may be called again after it was broken off at any point: it looks where the interface is and goes on from there.
"""

import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_interface, ip_network
from pathlib import Path
from typing import Any

from dray.driver.net.claim_records import InterfaceUse, PodSide, SavedRoute
from dray.driver.net.links import IFF_UP, PHYSICAL
from dray.driver.net.namespaces import ask
from dray.driver.net.parameters import RouteConfig
from dray.driver.plugin import PrepareError

log = logging.getLogger(__name__)

LARGEST_LIMIT = (1 << 32) * 8 - 8
"""Bits a second: the token bucket of the kernel counts bytes in 32 bits."""
_BETWEEN_KIND = "ifb"
_INGRESS, _ALL_PROTOCOLS, _PASSED_ON = 0xFFFF0000, 0x0003, 0x10000
_MAIN_TABLE = 254
_BY_KERNEL = 2
_BURST_S = 0.01
_SMALLEST_BURST = 1 << 15
_LATENCY = "50ms"
_BACK_WITHIN_S, _LOOK_EVERY_S = 5.0, 0.1


def read_routes(host: Path, index: int) -> tuple[SavedRoute, ...]:
    """The routes over an interface that do not come back by themselves with its addresses."""

    def read(routes: Any) -> tuple[SavedRoute, ...]:
        found = (
            each for family in (socket.AF_INET, socket.AF_INET6) for each in routes.get_routes(family=family, oif=index)
        )
        return tuple(_saved(each) for each in found if each.get("table") == _MAIN_TABLE and each["proto"] != _BY_KERNEL)

    return ask(host, read)


def _saved(route: Any) -> SavedRoute:
    anywhere = "::" if route["family"] == socket.AF_INET6 else "0.0.0.0"
    return SavedRoute(
        destination=f"{route.get('dst') or anywhere}/{route['dst_len']}",
        gateway=route.get("gateway"),
        source=route.get("prefsrc"),
        scope=route["scope"],
        metric=route.get("priority"),
        protocol=route["proto"],
    )


# --- into the pod ---------------------------------------------------------------------------------------------------


def bring_in(use: InterfaceUse, mark: str, host: Path, pod: Path) -> PodSide:
    """Moves the interface, or makes a share of it, and sets it up; the answer is how the pod sees it. PrepareError says why not."""
    with _kernel_errors(use):
        if use.is_shared:
            _make_share(use, mark, host, pod)
        else:
            _move_in(use, mark, host, pod)
        return ask(pod, lambda routes: _set_up(routes, use, mark))


def _move_in(use: InterfaceUse, mark: str, host: Path, pod: Path) -> None:
    def move(routes: Any) -> None:
        index = _marked(routes, mark) or _named(routes, use.link.name)
        if index is None:
            raise PrepareError(f"interface {use.link.name} is not on this machine any more")
        routes.link("set", index=index, ifalias=mark)
        routes.link("set", index=index, state="down")
        with _opened(pod) as target:
            routes.link("set", index=index, net_ns_fd=target, ifname=use.name_in_pod)

    if ask(pod, lambda routes: _marked(routes, mark)) is None:
        ask(host, move)


def _make_share(use: InterfaceUse, mark: str, host: Path, pod: Path) -> None:
    """A macvlan interface, made right in the pod's namespace: it ends with the namespace, whatever happens to the driver."""

    def make(routes: Any) -> None:
        parent = _named(routes, use.link.name)
        if parent is None:
            raise PrepareError(f"interface {use.link.name} is not on this machine any more")
        if not routes.get_links(parent)[0]["flags"] & IFF_UP:
            raise PrepareError(f"interface {use.link.name} is down: shares of it carry nothing")
        with _opened(pod) as target:
            routes.link(
                "add", ifname=use.name_in_pod, kind="macvlan", link=parent, macvlan_mode="bridge", net_ns_fd=target
            )

    def mark_it(routes: Any) -> None:
        index = _named(routes, use.name_in_pod)
        routes.link("set", index=index, ifalias=mark)

    if ask(pod, lambda routes: _marked(routes, mark)) is None:
        ask(pod, lambda routes: _remove_unfinished_share(routes, use))
        ask(host, make)
        ask(pod, mark_it)


def _remove_unfinished_share(routes: Any, use: InterfaceUse) -> None:
    """One that was made and not marked, because the driver was killed in between."""
    for link in routes.get_links(ifname=use.name_in_pod):
        kind = (link.get("linkinfo") or {}).get("kind")
        if kind == "macvlan" and link.get("link") == use.link.index and not link.get("ifalias"):
            routes.link("del", index=link["index"])


def _set_up(routes: Any, use: InterfaceUse, mark: str) -> PodSide:
    wanted = use.config.interface
    index = _marked(routes, mark)
    if index is None:
        raise PrepareError(f"interface {use.link.name} went away on its way into the pod")
    if wanted.hardware_addr is not None:
        routes.link("set", index=index, address=wanted.hardware_addr)
    if wanted.mtu is not None:
        routes.link("set", index=index, mtu=wanted.mtu)
    if use.bits_per_second is not None:
        _limit(routes, index, use.bits_per_second)
        _limit_received(routes, index, use.bits_per_second)
    # A share is beside the host's interface, so it cannot have the same addresses.
    own = () if use.is_shared else (*use.link.ipv4, *use.link.ipv6)
    _set_addresses(routes, index, own if wanted.addresses is None else wanted.addresses)
    routes.link("set", index=index, state="up")
    for route in use.config.routes or ():
        _add_route(routes, index, route)
    return _pod_side(routes, index)


def _limit(routes: Any, index: int, bits_per_second: int) -> None:
    rate = bits_per_second // 8
    burst = max(_SMALLEST_BURST, int(rate * _BURST_S))
    routes.tc("replace", "tbf", index=index, handle="1:", rate=rate, burst=burst, latency=_LATENCY)


def _limit_received(routes: Any, index: int, bits_per_second: int) -> None:
    """The kernel limits only what is sent. So what arrives is sent through an interface in between, which has the limit."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        between = _made_between(routes, index)
        _limit(routes, between, bits_per_second)
        routes.link("set", index=between, state="up")
        _redirect_received(routes, index, between)
    except NetlinkError as error:
        raise PrepareError(
            f"the kernel cannot limit what a pod receives, it needs ifb, u32 and mirred: {error.args[-1]}"
        ) from error


def _redirect_received(routes: Any, index: int, to: int) -> None:
    routes.tc("replace", "ingress", index=index)
    if not routes.get_filters(index=index, parent=_INGRESS):
        routes.tc(
            "add-filter",
            "u32",
            index=index,
            parent=_INGRESS,
            prio=1,
            protocol=_ALL_PROTOCOLS,
            target=_PASSED_ON,
            keys=["0x0/0x0+0"],
            action={"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": to},
        )


def _made_between(routes: Any, index: int) -> int:
    name = _between_name(index)
    found = _named(routes, name)
    if found is None:
        routes.link("add", ifname=name, kind=_BETWEEN_KIND)
        found = _named(routes, name)
        assert found is not None, f"interface {name} was made just now"
    return found


def _between_name(index: int) -> str:
    """No two shares in a namespace have the same index."""
    return f"in-{index}"


def _pod_side(routes: Any, index: int) -> PodSide:
    [link] = routes.get_links(index)
    return PodSide(link.get("ifname"), tuple(_addresses(routes, index)), link.get("address") or "")


# --- back to the host -----------------------------------------------------------------------------------------------


def bring_back(use: InterfaceUse, mark: str, host: Path, pod: Path | None) -> None:
    """Undoes `bring_in`: the interface is on the host again as it was before. `pod` is None where its namespace is gone."""
    with _kernel_errors(use):
        if use.is_shared:
            if pod is not None:
                ask(pod, lambda routes: _remove_share(routes, use, mark))
            return
        if pod is not None:
            ask(pod, lambda routes: _move_out(routes, use, mark, host))
        if not _restored(use, mark, host):
            log.warning("interface %s did not come back: it went away while a pod had it", use.link.name)


def _restored(use: InterfaceUse, mark: str, host: Path) -> bool:
    """The kernel itself brings a card back whose namespace ended, some time later, under the name that it had there."""
    tries = 1 if use.link.type != PHYSICAL else int(_BACK_WITHIN_S / _LOOK_EVERY_S)
    for _ in range(tries):
        if ask(host, lambda routes: _restore(routes, use, mark)):
            return True
        time.sleep(_LOOK_EVERY_S)
    return False


def _remove_share(routes: Any, use: InterfaceUse, mark: str) -> None:
    index = _marked(routes, mark)
    if index is not None:
        # First: as long as the share is there, the interface in between is found by its index.
        between = _named(routes, _between_name(index)) if use.bits_per_second is not None else None
        if between is not None:
            routes.link("del", index=between)
        routes.link("del", index=index)
    _remove_unfinished_share(routes, use)


def _move_out(routes: Any, use: InterfaceUse, mark: str, host: Path) -> None:
    index = _marked(routes, mark)
    if index is not None:
        routes.link("set", index=index, state="down")
        with _opened(host) as target:
            routes.link("set", index=index, net_ns_fd=target, ifname=use.link.name)


def _restore(routes: Any, use: InterfaceUse, mark: str) -> bool:
    """Gives the interface back what it had; whether it is there at all."""
    before = use.link
    index = _marked(routes, mark) or _named(routes, before.name)
    if index is None:
        return False
    if routes.get_links(index)[0].get("ifname") != before.name:
        routes.link("set", index=index, state="down")
        routes.link("set", index=index, ifname=before.name)
    if use.config.interface.hardware_addr is not None:
        routes.link("set", index=index, address=before.mac)
    routes.link("set", index=index, mtu=before.mtu)
    _set_addresses(routes, index, (*before.ipv4, *before.ipv6))
    routes.link("set", index=index, state="up" if before.is_up else "down")
    for route in use.routes if before.is_up else ():
        _add_route(routes, index, route)
    # Last: what has no mark is as it was.
    routes.link("set", index=index, ifalias=before.alias)
    return True


# --- the kernel -----------------------------------------------------------------------------------------------------


def _marked(routes: Any, mark: str) -> int | None:
    return next((link["index"] for link in routes.get_links() if link.get("ifalias") == mark), None)


def _named(routes: Any, name: str) -> int | None:
    return next((link["index"] for link in routes.get_links() if link.get("ifname") == name), None)


def _addresses(routes: Any, index: int) -> Iterator[str]:
    for each in routes.get_addr(index=index):
        if each["scope"] == 0:
            yield f"{each.get('local') or each.get('address')}/{each['prefixlen']}"


def _set_addresses(routes: Any, index: int, wanted: tuple[str, ...]) -> None:
    """Exactly these, besides those that the kernel makes by itself."""
    there = set(_addresses(routes, index))
    for text in there - set(wanted):
        _address(routes, "del", index, text)
    for text in wanted:
        if text not in there:
            _address(routes, "add", index, text)


def _address(routes: Any, verb: str, index: int, text: str) -> None:
    found = ip_interface(text)
    broadcast = {"broadcast": str(found.network.broadcast_address)} if found.version == 4 and verb == "add" else {}
    routes.addr(verb, index=index, address=str(found.ip), prefixlen=found.network.prefixlen, **broadcast)


def _add_route(routes: Any, index: int, route: RouteConfig | SavedRoute) -> None:
    network = ip_network(route.destination)
    more: dict[str, Any] = {"gateway": route.gateway, "prefsrc": route.source}
    if isinstance(route, SavedRoute):
        more |= {"priority": route.metric, "proto": route.protocol}
    routes.route(
        "replace",
        family=socket.AF_INET6 if network.version == 6 else socket.AF_INET,
        dst=str(network),
        oif=index,
        scope=route.scope,
        **{name: value for name, value in more.items() if value is not None},
    )


@contextmanager
def _opened(namespace: Path) -> Iterator[int]:
    descriptor = os.open(namespace, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _kernel_errors(use: InterfaceUse) -> Iterator[None]:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        yield
    except NetlinkError as error:
        where = f" as {use.name_in_pod}" if use.name_in_pod != use.link.name else ""
        raise PrepareError(f"interface {use.link.name}{where}: {error.args[-1]}") from error
