"""The ResourceSlices of this node: read for the attributes of devices, removed when their drivers are gone.

Devices that several nodes can reach are in slices without a node name. These are watched only once a container needs one.
"""

import asyncio
import logging
from collections.abc import Callable

from dray.api.dra.pools import newest_of_pool
from dray.api.resource import Device, ResourceSlice
from dray.client import SLICES, ApiError, Client, Handler, Informer, ServerUnreachable

log = logging.getLogger(__name__)

WIPE_RETRY_CAP_S = 300.0
# A node that may not read the slices of several nodes goes on without them.
WAIT_FOR_SHARED_SLICES_S = 5.0


class NodeSlices:
    """`changed` is called whenever a slice is added or changed."""

    def __init__(self, client: Client, node_name: str, changed: Callable[[], None]) -> None:
        self._client = client
        self._selector = f"spec.nodeName={node_name}"
        self._changed = changed
        self._slices = self._informer(self._selector)
        self._shared_slices = self._informer("spec.nodeName=")
        self._reads_shared_slices = False

    def _informer(self, selector: str) -> Informer[ResourceSlice]:
        slices: Informer[ResourceSlice] = Informer(self._client, SLICES, field_selector=selector)
        slices.add_indexer("pool", lambda each: (f"{each.spec.driver}/{each.spec.pool.name}",))
        slices.add_handler(Handler(on_add=lambda _: self._changed(), on_update=lambda *_: self._changed()))
        return slices

    def start(self) -> None:
        self._slices.start()

    async def synced(self) -> None:
        await self._slices.synced()

    async def stop(self) -> None:
        await self._slices.stop()
        await self._shared_slices.stop()

    async def look_up_device(self, driver: str, pool: str, name: str) -> Device | None:
        """As `find_device`; a device that this node does not publish is looked for among those of several nodes."""
        device = self.find_device(driver, pool, name)
        if device is not None or self._reads_shared_slices:
            return device
        self._reads_shared_slices = True
        self._shared_slices.start()
        synced = asyncio.ensure_future(self._shared_slices.synced())
        timeout = asyncio.ensure_future(self._client.clock.sleep(WAIT_FOR_SHARED_SLICES_S))
        try:
            await asyncio.wait({synced, timeout}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            synced.cancel()
            timeout.cancel()
        return self.find_device(driver, pool, name)

    def find_device(self, driver: str, pool: str, name: str) -> Device | None:
        """A device as it is published, in the newest generation of its pool."""
        key = f"{driver}/{pool}"
        slices = [*self._slices.by_index("pool", key), *self._shared_slices.by_index("pool", key)]
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
