"""Facts of dynamic resource allocation that many rooms need, each written once. Pure: no clock, no I/O.

`pod_claims` says which claims a pod names and what they are called; `claim_users` who may use a claim and for whom it
was made; `pod_phase` whether a pod has finished; `pools` which slices of a pool count; `consumption` what allocations
take from devices, capacities and counters; `compatibility` which devices may be in use together; `device_use`
which devices are used, partly used, free or blocked; `taints` which taint is tolerated; `qos` which QoS class a pod has.

`dray.proof` does not use these modules: it checks the others and therefore counts for itself.
"""
