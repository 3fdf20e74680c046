"""Dray: Kubernetes Dynamic Resource Allocation, whole, in Python. `docs/architecture.md` has the map of the rooms."""

import os

# The node agent starts containers by fork; gRPC must not try to follow into a child that never uses it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Drivers come and go; gRPC's own remarks on that are no news to anybody.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

__version__ = "0.1.0"
