"""Kubernetes objects as plain data.

Two forms of one object meet here. A *document* is the JSON tree as it travels and is stored: a dict, with every field that the
sender wrote. An *object* is a frozen struct with the fields that our code reads. `codec` turns one into the other.

| module | holds |
| --- | --- |
| `schemas` | the description of every type that Kubernetes 1.37 serves: fields, protobuf numbers, list types, rules for empty values |
| `meta`, `core`, `resource`, `workloads`, `projections` | structs, generated from the description by `scripts/generate_api.py` |
| `scheme`, `served_versions` | one row per served kind: group, plural, verbs, subresources, printed columns; which of them are switched on |
| `codec`, `shaping`, `scalars`, `slice_text`, `caching` | decoding, encoding, and the shape in which the server writes a document |
| `versions`, `kep_field_names` | older API versions and older field names |
| `defaults`, `pod_defaults`, `gated_fields`, `strategies`, `prepare_for_write` | what a write changes before it is validated |
| `manifests`, `yamltext`, `jsontext` | reading files and request bodies |
| `quantity`, `semver`, `names`, `times`, `cpuset`, `cdi` | values inside of objects |
| `matching`, `dra`, `reasons` | facts about pods, nodes, claims and devices that many rooms need, and reasons for a refusal |

Nothing here reads a clock or a socket. Whether an object is valid is decided in `dray.validation`.
"""
