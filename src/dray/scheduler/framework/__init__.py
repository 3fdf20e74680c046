"""Extension points, what they answer with, and the runner that calls them in order.

Knows no plugin by name. A filter or score that depends on little (a pod's shape, a few facets of a node) says so, and its
answers are remembered per node until that facet changes.
"""
