"""The plugins that come with the scheduler: each large one in a file of its own, small ones together.

They use the framework and the snapshot. A few import a helper or a value type of another plugin, such as `node_resources_fit`.
"""
