"""Every namespace has the cluster's CA in the ConfigMap `kube-root-ca.crt`, so that pods can trust the API server."""

from __future__ import annotations

from typing import Any

from dray.api.core import Namespace
from dray.api.workloads import ConfigMap
from dray.client import CONFIG_MAPS, NAMESPACES, ApiError, Handler, WorkQueue
from dray.controllers.context import ControllerContext

CONFIG_MAP, KEY = "kube-root-ca.crt", "ca.crt"
ANNOTATION = "kubernetes.io/description"
DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class RootCaController:
    name = "root-ca-certificate-publisher-controller"

    def __init__(self, context: ControllerContext, ca: str) -> None:
        self._client = context.client.named("root-ca-cert-publisher")
        self._informers = context.informers
        self._ca = ca
        self._namespaces = context.informers.of(NAMESPACES)
        # One name in every namespace: there is no need to hold everybody's ConfigMaps.
        self._config_maps = context.informers.of(CONFIG_MAPS, field_selector=f"metadata.name={CONFIG_MAP}")
        self.queue: WorkQueue[str] = WorkQueue("root_ca_cert_publisher", clock=context.clock, registry=context.registry)
        self._namespaces.add_handler(Handler(self._namespace_seen, lambda _, new: self._namespace_seen(new)))
        self._config_maps.add_handler(
            Handler(self._config_map_seen, lambda _, new: self._config_map_seen(new), self._config_map_gone)
        )

    async def run(self) -> None:
        await self._informers.synced()
        await self.queue.run(self.sync)

    def _namespace_seen(self, namespace: Namespace) -> None:
        if self._config_maps.get(f"{namespace.metadata.name}/{CONFIG_MAP}") is None:
            self.queue.add(namespace.metadata.name)

    def _config_map_seen(self, config_map: ConfigMap) -> None:
        if config_map.metadata.name == CONFIG_MAP and config_map.data != {KEY: self._ca}:
            self.queue.add(config_map.metadata.namespace)

    def _config_map_gone(self, config_map: ConfigMap) -> None:
        if config_map.metadata.name == CONFIG_MAP:
            self.queue.add(config_map.metadata.namespace)

    async def sync(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return
        known = self._config_maps.get(f"{name}/{CONFIG_MAP}")
        if known is not None and known.data == {KEY: self._ca}:
            return
        metadata = {"namespace": name, "name": CONFIG_MAP, "annotations": {ANNOTATION: DESCRIPTION}}
        document: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        document["data"] = {KEY: self._ca}
        try:
            if known is None:
                await self._client.create(CONFIG_MAPS, document)
            else:
                await self._client.update(CONFIG_MAPS, document)
        except ApiError as error:
            if not (error.is_already_exists or error.is_namespace_terminating or error.is_not_found):
                raise
