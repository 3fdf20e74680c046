"""Whole clusters in one process, and simulations of a cluster from its objects.

`control_plane` assembles the API server, controllers and scheduler (`control_loops`) as `dray up`, `dray demo` and
`dray.testing` start them. `loops_process` starts controllers and scheduler in a second process (`loops_main`), which calls the server
through a pipe (`pipe_server`). `nodes` adds the nodes of `node_pools`: agents with drivers, or simulated ones. `running_clusters` lists those of this machine.
`bench` measures whole clusters.

Offline, `simulation` runs the real scheduler over a copy of a cluster's objects (`memory_cluster`) on simulated time, after
`admitted_pods` has prepared the pods as admission and controllers do. `pod_explanation` asks it why a pod waits and tries what would
help; `live_explanation` does that for a pod of a running cluster, and `waiting_causes` for all pods of a simulation. `node_templates`
and `autoscaling` add nodes, and `reports` shows the results.
"""
