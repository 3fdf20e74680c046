"""`dray bench`: measures whole clusters, from the creation of a pod over HTTPS to its binding.

`workload` describes what to run, `cluster` starts the control plane in `processes`, `load` creates pods and measures.
"""
