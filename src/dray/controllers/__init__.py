"""The control loops of a cluster, one per file or folder: each watches some kinds and writes what follows from them.

`claims` creates, reserves and releases ResourceClaims; `taint_eviction` and `pool_status` belong to devices, too.
`node_taint_eviction` is about taints of nodes; both evict with `pod_eviction`.
`garbage_collector`, `namespaces`, `service_accounts`, `root_ca_publisher`, `pod_gc`, `resource_quotas` and `node_lifecycle` do
what Kubernetes' controllers of these names do. `replica_sets`, `deployments`, `jobs` and `daemon_sets` make pods, with what
they share in `owned_pods`, `workload_status` and `deployment_rollout`; `disruption` says how many of them may be evicted. `discovery` finds out which kinds the server has,
`controller_manager` starts the controllers and keeps them running. Controllers know the cluster only through `dray.client`.
"""
