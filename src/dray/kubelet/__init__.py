"""The node agent: it speaks the kubelet's side of the DRA protocol and runs the pods of one node.

`server` holds the parts together; `node` registers the node and renews its lease. `claims` decides, without doing anything,
which claims must be prepared or given back; `checkpoint` keeps that on disk, written before any driver is called; `prepare`
does it. `drivers` registers drivers and calls them over gRPC. `pod_worker` takes one pod from admission to its end:
`container_specs` describes a container with its devices, `container_restarts` keeps it running,
`pod_status` computes the status and `pod_status_writer` writes it. `log_files` and `log_server` are behind `kubectl logs`.
`runtime` starts containers: as local processes, through CRI, or not at all. `simulated_kubelets` stand for many nodes whose
pods only look as if they ran.

Not here: choosing devices (`dray.allocator`) and what a driver does with them (`dray.driver`).
"""
