"""gRPC messages and services, generated from the `.proto` files beside this one by `scripts/generate_proto.py`; never edited.

The `.proto` files hold only what Dray sends or reads; names and field numbers are those of the real protocols.
"""
