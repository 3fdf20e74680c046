"""Errors of drivers, registrations, containers and sandboxes."""


class DriverError(Exception):
    """A driver is not there, did not answer in time, or its answer makes no sense."""


class RegistrationError(Exception):
    """A plugin that cannot be registered; the text is sent back to it."""


class ContainerError(Exception):
    """A container cannot be started as described. `reason` is what its waiting state shows."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SandboxGone(Exception):
    """What the pod's containers live in has ended, and they cannot be started in it any more."""
