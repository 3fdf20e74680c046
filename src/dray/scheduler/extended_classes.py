"""Which device class serves an extended resource."""

from dray.api.resource import IMPLICIT_EXTENDED_RESOURCE_PREFIX, DeviceClass


class ExtendedClasses:
    """By explicit name, and always by `deviceclass.resource.kubernetes.io/<class>`."""

    def __init__(self) -> None:
        self._classes: dict[str, DeviceClass] = {}
        self._by_name: dict[str, dict[str, DeviceClass]] = {}

    def set(self, device_class: DeviceClass) -> None:
        self.remove(device_class.metadata.name)
        self._classes[device_class.metadata.name] = device_class
        name = device_class.spec.extended_resource_name
        if name:
            self._by_name.setdefault(name, {})[device_class.metadata.name] = device_class

    def remove(self, class_name: str) -> None:
        known = self._classes.pop(class_name, None)
        if known is None or not known.spec.extended_resource_name:
            return
        classes = self._by_name[known.spec.extended_resource_name]
        del classes[class_name]
        if not classes:
            del self._by_name[known.spec.extended_resource_name]

    def serving(self, resource: str) -> DeviceClass | None:
        """Of several classes with the name the newest, then the one whose name sorts first."""
        if resource.startswith(IMPLICIT_EXTENDED_RESOURCE_PREFIX):
            return self._classes.get(resource.removeprefix(IMPLICIT_EXTENDED_RESOURCE_PREFIX))
        classes = self._by_name.get(resource)
        if not classes:
            return None
        newest = max(row.metadata.creation_timestamp or "" for row in classes.values())
        return classes[min(name for name, row in classes.items() if (row.metadata.creation_timestamp or "") == newest)]
