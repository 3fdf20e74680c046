"""Errors of drivers, registrations, containers and sandboxes."""


class DriverError(Exception):
    """A driver is not registered, did not answer in time, or gave an answer that makes no sense."""


class RegistrationError(Exception):
    """A plugin that cannot be registered; the text is sent back to it."""


class ContainerError(Exception):
    """A container cannot be started as described. `reason` is what its waiting state shows."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SandboxGone(Exception):
    """The pod's sandbox has ended, so that no container can be started in it any more."""
