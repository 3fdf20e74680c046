"""The control loops of a cluster, one per file or folder: each watches some kinds and writes what follows from them.

`claims` is the heart. `garbage`, `namespaces`, `service_accounts`, `root_ca`, `pod_gc`, `quotas`,
`node_lifecycle` keep the house;
`taint_eviction` and `pool_status` belong to devices; `replica_sets`, `deployments`, `jobs`, `daemon_sets` make pods. `roster`
puts them together. Controllers know the cluster only through `dray.client`.
"""
