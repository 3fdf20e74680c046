DRIVERS_OF_HARDWARE: dict[str, Callable[[], Driver]] = {"memory": _memory, "net": _net, "nvidia": _nvidia}
"""Names for `dray driver` alone: these publish what the machine they run on has."""
