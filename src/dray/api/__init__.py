"""Kubernetes objects as plain data.

Two forms of one object meet here. A *document* is the JSON tree as it travels and is stored: a dict, with every field
the sender wrote. An *object* is a frozen struct of `resource`, `core` or `meta`: what our code reads. `codec` turns one
into the other; `shaping` brings a document into the shape of its kind; `versions`, `defaults` and `gated_fields` change
documents; `preparation` and `strategies` are what a write goes through before it is judged; `matching` says which nodes
and labels a pod goes with; `dra` holds the facts of claims, pools, taints and pods that many rooms need, each once;
`reasons` is why something was refused; `quantity`, `semver` and `names` are the values inside.

Nothing here reads a clock, a file or a socket, and nothing here decides: rules live in `dray.validation`.
"""
