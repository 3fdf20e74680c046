"""gRPC messages and services, generated from the `.proto` files beside this one by `scripts/generate_proto.py`; never edited.

The `.proto` files hold only what Dray sends or reads; names and field numbers are those of the real protocols.
"""

import os

# Containers are started by fork: gRPC must not try to follow into the child, where it is not used.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
