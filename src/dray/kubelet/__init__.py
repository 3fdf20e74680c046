"""The node agent: it speaks the kubelet's side of the DRA protocol and runs the pods of one node.

`claims` decides, without doing anything: which claims must be prepared or given back. `checkpoint` keeps that on disk,
written before any driver is called. `drivers` finds and calls drivers over gRPC. `pod_worker` takes one pod from admission
to its end, with `container_keeper` for its containers and `pod_report` for what the API hears. `log_files` are what `kubectl logs`
shows. `runtime` starts containers: as local processes, through CRI, or not at all.

Not here: choosing devices (`dray.allocator`) and what a driver does with them (`dray.driver`).
"""
