"""Kubernetes objects as plain data.

Two forms of one object meet here. A *document* is the JSON tree as it travels and is stored: a dict, with every field
the sender wrote. An *object* is a frozen struct of `resource`, `core` or `meta`: what our code reads. `codec` turns one
into the other; `versions`, `defaults` and `gated_fields` change documents; `quantity`, `semver` and `names` are the values inside.

Nothing here reads a clock, a file or a socket, and nothing here decides: rules live in `dray.validation`.
"""
