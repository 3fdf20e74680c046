"""Stores opaque values under text keys, with one global revision and watches.

A store knows nothing about Kubernetes. Every commit gets the next number of one global sequence (the revision), and a watch
replays the changes after any revision that the store still holds. `interface` defines the Store protocol; `sqlite` (with
`sqlite_tables`, `group_commit`) and `etcd` (with `etcd_connection`) implement it; `store_base`
has what both share, and delivers live changes to watches; `store_url` opens the store that a `--store` URL names; `compaction` drops old history.

Object encoding, resource versions on the wire, and caches live in `dray.apiserver`.
"""
