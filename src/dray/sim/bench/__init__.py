"""`dray bench`: measures whole clusters, from the creation of a pod over HTTPS to its binding.

`workload` describes what to run, `cluster_processes` starts the control plane in processes of its own
(`process_main` is what they run), `load` creates pods and measures.
"""
