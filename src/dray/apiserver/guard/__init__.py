"""The guard: no two claims hold one device, no capacity and no counter is overdrawn, no node is overbooked.

For every device that a claim holds there is a key in the store, and one for every counter set that held devices draw from. A
claim's status and these keys change in one commit, each key on condition that nobody changed it meanwhile, so the promise
holds for any number of schedulers and of API servers on one etcd. `holdings` reads claims, `published` knows what slices
offer, `plan` decides, `guarded_commit` writes and tries again when another claim was quicker at a shared key.

Results with adminAccess hold nothing.

`bindings` stands before it and asks `placements` whether a node has room for one more pod.
"""
