"""A whole driver: desk fans, one of them broken. Run it on a node with: python fan_driver.py --node-name NODE"""

from dray.driver import (
    ContainerEdits,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceHealth,
    Driver,
    Pool,
    PreparedDevice,
    PrepareError,
    Quantity,
    run,
)


class FanDriver(Driver):
    name = "fan.example.com"

    def pools(self, node_name):
        fans = [
            Device(
                name=f"fan-{number}",
                attributes={"blades": DeviceAttribute(int_=3 + number), "colour": DeviceAttribute(string="white")},
                capacity={"airflow": DeviceCapacity(value=Quantity.parse("2k"))},
            )
            for number in range(4)
        ]
        return [Pool(node_name, tuple(fans))]

    def prepare(self, claim):
        prepared = []
        for fan in claim.devices:
            speed = next(
                (each.parameters["speed"] for each in reversed(fan.config) if "speed" in each.parameters), "low"
            )
            if speed not in ("low", "high"):
                raise PrepareError(f"speed {speed!r}: must be low or high")
            edits = ContainerEdits(env=(f"FAN_{fan.device[-1]}={speed}",))
            prepared.append(PreparedDevice(fan, edits))
        return prepared

    def health(self):
        for pool in self.published_pools:
            for fan in pool.devices:
                broken = fan.name == "fan-3"
                yield DeviceHealth(pool.name, fan.name, "Unhealthy" if broken else "Healthy", "stuck" if broken else "")


if __name__ == "__main__":
    run(FanDriver())
