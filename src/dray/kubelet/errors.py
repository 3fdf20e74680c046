"""Errors of drivers, registrations, containers and sandboxes."""


class DriverError(Exception):
    """A driver is not registered, did not answer in time, or gave an answer that makes no sense."""


class RegistrationError(Exception):
    """A plugin that cannot be registered; the text is sent back to it."""


class ContainerError(Exception):
    """A container cannot be started as described. `reason` is what its waiting state shows.

    `final_after_s` is how long the failure must last until the start counts as failed for good, for a container that its
    policy does not restart. None: the start is tried again for ever, whatever the policy says.
    """

    def __init__(self, reason: str, message: str, *, final_after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.final_after_s = final_after_s

    def is_final(self, lasting_s: float) -> bool:
        return self.final_after_s is not None and lasting_s >= self.final_after_s


class SandboxGone(Exception):
    """The pod's sandbox has ended, so that no container can be started in it any more."""


def start_error(message: str) -> ContainerError:
    return ContainerError("StartError", message, final_after_s=0.0)
