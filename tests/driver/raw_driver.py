"""A driver written without the kit, as one in another language would be; its argument lists what it does wrong."""

import argparse
import asyncio
import json
import os
import signal
from pathlib import Path

import grpc

from dray.client import CLAIMS, NODES, SLICES, connect
from dray.proto import (
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)

NAME = "raw.example.com"


class RawDriver(dra_v1_pb2_grpc.DRAPluginServicer, pluginregistration_pb2_grpc.RegistrationServicer):
    def __init__(self, faults, options):
        self.faults, self.options = faults, options
        self.client = connect(options.kubeconfig)
        self.data = options.kubelet_root / "plugins" / NAME
        self.state = self.data / "state.json"
        self.answers = 0

    # --- registration

    async def GetInfo(self, request, context):
        if "get-info" in self.faults:
            await context.abort(grpc.StatusCode.INTERNAL, "out of memory")
        return pluginregistration_pb2.PluginInfo(
            type="CSIPlugin" if "type" in self.faults else "DRAPlugin",
            name="Raw_Driver" if "name" in self.faults else NAME,
            endpoint=str(self.data / ("nobody.sock" if "endpoint" in self.faults else "dra.sock")),
            supported_versions=() if "versions" in self.faults else ("v1.DRAPlugin", *self.health_services()),
        )

    def health_services(self):
        return ("v1.DRAResourceHealth",) if self.faults & {"health-state", "health-missing"} else ()

    async def NodeWatchResources(self, request, context):
        device = dra_health_v1_pb2.DeviceIdentifier(pool_name=self.options.node_name, device_name="d-0")
        report = dra_health_v1_pb2.DeviceHealth(device=device, health=7)
        yield dra_health_v1_pb2.NodeWatchResourcesResponse(devices=[report])
        await asyncio.Event().wait()

    async def NotifyRegistrationStatus(self, request, context):
        return pluginregistration_pb2.RegistrationStatusResponse()

    # --- claims

    def held(self):
        return json.loads(self.state.read_text()) if self.state.exists() and "forgets" not in self.faults else {}

    async def NodePrepareResources(self, request, context):
        response = dra_v1_pb2.NodePrepareResourcesResponse()
        for asked in request.claims:
            if "crash" in self.faults:
                print("segmentation fault", flush=True)
                os._exit(139)
            if "hang" in self.faults:
                await asyncio.Event().wait()
            if "no-answer" in self.faults:
                continue
            answer = response.claims[asked.uid]
            try:
                claim = await self.client.get(CLAIMS, asked.name, asked.namespace)
            except Exception as error:
                answer.error = str(error)
                continue
            if claim.metadata.uid != asked.uid and "replaced" not in self.faults:
                answer.error = "claim got replaced"
                continue
            self.prepare(asked.uid, claim, answer)
        return response

    def prepare(self, uid, claim, answer):
        held, entries = self.held(), []
        for result in claim.status.allocation.devices.results:
            if not result.device.startswith("d-") and "invents" not in self.faults:
                answer.error = f"there is no device {result.device}"
                return
            holders = [other for other, devices in held.items() if result.device in devices and other != uid]
            if holders and not result.admin_access and "twice" not in self.faults:
                answer.error = f"device {result.device} is held by claim {holders[0]}"
                return
            # Whoever only looks after a device holds nothing.
            held.setdefault(uid, [])
            if not result.admin_access and result.device not in held[uid]:
                held[uid].append(result.device)
            self.answers += 1
            entry = f"{uid}-{result.device}" + (f"-{self.answers}" if "differs" in self.faults else "")
            edits = {"env": [f"RAW={result.device}"]} if "empty-cdi" not in self.faults else {}
            entries.append({"name": entry, "containerEdits": edits})
            if "no-devices" in self.faults:
                continue
            answer.devices.append(
                dra_v1_pb2.Device(
                    request_names=["wrong" if "request" in self.faults else result.request],
                    pool_name=result.pool,
                    device_name="d-7" if "other-device" in self.faults else result.device,
                    cdi_device_ids=[f"{NAME}/dev={entry}"],
                )
            )
        self.write_cdi(uid, entries)
        self.state.write_text(json.dumps(held))

    def write_cdi(self, uid, entries):
        if "no-cdi" in self.faults:
            return
        document = {"cdiVersion": "0.5.0", "kind": f"{NAME}/dev", "devices": entries}
        (self.options.cdi_dir / f"raw-{uid}.json").write_text(json.dumps(document))

    async def NodeUnprepareResources(self, request, context):
        response = dra_v1_pb2.NodeUnprepareResourcesResponse()
        held = self.held()
        for asked in request.claims:
            if "unknown" in self.faults and asked.uid not in held:
                response.claims[asked.uid].error = "no such claim"
                continue
            if "needs-claim" in self.faults:
                try:
                    await self.client.get(CLAIMS, asked.name, asked.namespace)
                except Exception as error:
                    response.claims[asked.uid].error = str(error)
                    continue
            held.pop(asked.uid, None)
            if "leaves-files" not in self.faults:
                (self.options.cdi_dir / f"raw-{asked.uid}.json").unlink(missing_ok=True)
            response.claims[asked.uid].error = ""
        self.state.write_text(json.dumps(held))
        return response

    # --- life

    async def publish(self):
        name = self.options.node_name
        node = await self.client.get(NODES, name)
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}
        existing = (await self.client.list(SLICES, field_selector=f"spec.driver={NAME}")).items
        if existing and "rewrites" not in self.faults:
            return
        for each in existing:
            await self.client.delete(SLICES, each.metadata.name)
        count = 2 if "incomplete" in self.faults else 1
        pool = {"name": name, "generation": 1, "resourceSliceCount": count}
        spec = {"driver": NAME, "nodeName": name, "pool": pool, "devices": [{"name": "d-0"}, {"name": "d-1"}]}
        metadata = {"generateName": "raw-", "ownerReferences": [] if "no-owner" in self.faults else [owner]}
        await self.client.create(SLICES, {"metadata": metadata, "spec": spec})

    async def run(self):
        self.data.mkdir(parents=True, exist_ok=True)
        servers = []
        for path, add in (
            (self.data / "dra.sock", dra_v1_pb2_grpc.add_DRAPluginServicer_to_server),
            (
                self.options.kubelet_root / "plugins_registry" / f"{NAME}-reg.sock",
                pluginregistration_pb2_grpc.add_RegistrationServicer_to_server,
            ),
        ):
            path.unlink(missing_ok=True)
            server = grpc.aio.server()
            add(self, server)
            if path.name == "dra.sock" and "health-state" in self.faults:
                dra_health_v1_pb2_grpc.add_DRAResourceHealthServicer_to_server(self, server)
            server.add_insecure_port(f"unix:{path}")
            await server.start()
            servers.append(server)
        await self.publish()
        stopping = asyncio.Event()
        handle = (lambda: None) if "deaf" in self.faults else stopping.set
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, handle)
        await stopping.wait()
        if "deletes" in self.faults:
            for each in (await self.client.list(SLICES)).items:
                await self.client.delete(SLICES, each.metadata.name)
        for server in servers:
            await server.stop(None)
        if "exit-code" in self.faults:
            raise SystemExit(5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("faults")
    for name, kind in (("kubeconfig", str), ("node-name", str), ("kubelet-root", Path), ("cdi-dir", Path)):
        parser.add_argument(f"--{name}", type=kind)
    options = parser.parse_args()
    asyncio.run(RawDriver(frozenset(options.faults.split(",")), options).run())


if __name__ == "__main__":
    main()
