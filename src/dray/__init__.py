"""Dray: Kubernetes Dynamic Resource Allocation, whole, in Python. `docs/architecture.md` has the map of the rooms."""

__version__ = "0.1.0"
