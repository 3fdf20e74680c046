"""Kinds that come and go at run time: CustomResourceDefinitions and the objects of their kinds.

`definitions` follows the definitions and adds an established kind to the served ones; `definition_controller` sets their conditions and removes
the objects of a definition that is deleted. `definition_validation` and `structural_schemas` refuse definitions that make no sense.

`custom_kind` is what the rest of the server asks about such a kind (`Resource.custom`): shape, defaults, rules, columns. Behind it,
`schema_nodes` reads the schema once, `conversions` asks conversion webhooks, `pruning_and_defaults`, `value_validation` and `cel_rules` apply it to objects, `json_paths` reads columns and selectable fields.
"""
