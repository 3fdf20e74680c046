"""The guard: no two claims hold one device, no capacity and no counter is overdrawn, no node is overbooked.

For every device that a claim holds there is a key in the store, and one for every counter set that held devices draw from. A
claim's status and these keys change in one commit, each key on condition that nobody changed it meanwhile, so the promise
holds for any number of schedulers and of API servers on one etcd. Results with adminAccess hold nothing.

- `claim_guard` commits claims with these keys, and tries again when another claim was quicker at a shared key.
- `device_records` knows what the newest slices of each pool offer, reads and changes the keys' values, and refuses a device, capacity or
  counter that is taken.
- `binding_guard` knows how much of each node its pods take, commits bindings of pods, and refuses one for which the node has no room.
"""
