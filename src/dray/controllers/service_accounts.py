"""Every namespace has a service account named `default`, for pods that name none."""

from __future__ import annotations

from dray.api.core import Namespace
from dray.api.workloads import ServiceAccount
from dray.client import NAMESPACES, SERVICE_ACCOUNTS, ApiError, Handler, WorkQueue
from dray.controllers.context import ControllerContext

DEFAULT = "default"


class ServiceAccountController:
    name = "serviceaccount-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client.named("service-account-controller")
        self._informers = context.informers
        self._namespaces = context.informers.of(NAMESPACES)
        self._accounts = context.informers.of(SERVICE_ACCOUNTS)
        self.queue: WorkQueue[str] = WorkQueue("serviceaccount", clock=context.clock, registry=context.registry)
        self._namespaces.add_handler(Handler(self._namespace_seen, lambda _, new: self._namespace_seen(new)))
        self._accounts.add_handler(Handler(on_delete=self._account_gone))

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync)

    def _namespace_seen(self, namespace: Namespace) -> None:
        if self._accounts.get(f"{namespace.metadata.name}/{DEFAULT}") is None:
            self.queue.add(namespace.metadata.name)

    def _account_gone(self, account: ServiceAccount) -> None:
        if account.metadata.name == DEFAULT:
            self.queue.add(account.metadata.namespace)

    async def sync(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return
        if self._accounts.get(f"{name}/{DEFAULT}") is not None:
            return
        document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": name, "name": DEFAULT}}
        try:
            await self._client.create(SERVICE_ACCOUNTS, document)
        except ApiError as error:
            if not (error.is_already_exists or error.is_namespace_terminating or error.is_not_found):
                raise
