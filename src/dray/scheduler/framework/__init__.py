"""The extension points of plugins, the answers that plugins give, and the runner that calls plugins in order.

The framework knows no plugin by name. A filter or score that depends on little (a pod's shape, a few facets of a node) says so, and its
answers are remembered per node until that facet changes.
"""
