"""Why a pod waits, what would help, and what looks wrong in a cluster.

    objects = ClusterObjects.of(...)                            nodes, pods, claims, slices, ... of one moment
    device_verdict(allocator, question, node, holders)          why a node's devices cannot serve a pod's claims: counts per
                                                                test, the nearest miss with the sub-expression that decided
    DeviceVerdicts(allocator, question, holders).on(node)       the same for many nodes; equal ones are looked at once
    what_would_help(allocator, claims, node, report, holders)   changes of claims after which the node's devices serve them
    node_remedies(pod, where, code, rows)                       changes of the node, its pods or the pod for one refusal
    why_no_claim(objects, pod, entry), unready_devices(claim)   causes that quotas, labels, conditions and events know
    short_rows(ledger, demand, spec_demand)                     rows of a node's ledger that are short, and who takes the most
    device_rows(objects)                                         every device with its holders (`dray devices`)
    examine(objects)                                            known traps, each with its remedy (`dray doctor`)

`verdicts` has the explanation of a pod as values, `pod_text` the same as text, `reason_codes` every stable reason code with its meaning. What devices a
pod gets is decided in `dray.allocator`, what a node has left in `dray.accounting`; which node filter said no comes in from the
scheduler (`dray.sim.pod_explanation` puts the two together, and its `rehearsals` tries each change before it is told). Nothing here reads a clock, a file or a network.
"""
