"""The ResourceSlices of this node: read for the attributes of devices, removed when their drivers are gone."""

import logging
from collections.abc import Callable

from dray.api.dra.pools import newest_of_pool
from dray.api.resource import Device, ResourceSlice
from dray.client import SLICES, ApiError, Client, Handler, Informer, ServerUnreachable

log = logging.getLogger(__name__)

WIPE_RETRY_CAP_S = 300.0


class NodeSlices:
    """`changed` is called whenever a slice is added or changed."""

    def __init__(self, client: Client, node_name: str, changed: Callable[[], None]) -> None:
        self._client = client
        self._selector = f"spec.nodeName={node_name}"
        self._slices: Informer[ResourceSlice] = Informer(client, SLICES, field_selector=self._selector)
        self._slices.add_indexer("pool", lambda each: (f"{each.spec.driver}/{each.spec.pool.name}",))
        self._slices.add_handler(Handler(on_add=lambda _: changed(), on_update=lambda *_: changed()))

    def start(self) -> None:
        self._slices.start()

    async def synced(self) -> None:
        await self._slices.synced()

    async def stop(self) -> None:
        await self._slices.stop()

    def find_device(self, driver: str, pool: str, name: str) -> Device | None:
        """A device as it is published, in the newest generation of its pool."""
        slices = self._slices.by_index("pool", f"{driver}/{pool}")
        return next(
            (device for each in newest_of_pool(slices) for device in each.spec.devices if device.name == name), None
        )

    async def wipe_once(self) -> bool:
        """Delete all of them; False if that does not work now."""
        try:
            await self._client.delete_collection(SLICES, field_selector=self._selector)
        except (ApiError, ServerUnreachable) as error:
            log.warning("ResourceSlices with %s cannot be deleted now: %s", self._selector, error)
            return False
        return True

    async def wipe(self, driver: str) -> None:
        """Delete those of one driver, or of all (empty); again and again until it worked."""
        selector = self._selector + (f",spec.driver={driver}" if driver else "")
        wait_s = 1.0
        while True:
            try:
                await self._client.delete_collection(SLICES, field_selector=selector)
                return
            except (ApiError, ServerUnreachable) as error:
                if isinstance(error, ApiError) and error.is_not_found:
                    return
                log.warning("ResourceSlices with %s cannot be deleted now: %s", selector, error)
            await self._client.clock.sleep(wait_s)
            wait_s = min(wait_s * 2, WIPE_RETRY_CAP_S)
