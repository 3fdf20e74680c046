"""Keys, bytes, revisions, watches.

A store knows nothing about Kubernetes: it keeps opaque values under text keys, gives every commit the next number of
one global sequence (the revision), and replays what happened after any revision it still remembers. `interface` is the
promise, `sqlite` and `etcd` keep it, `opening` turns a `--store` URL into one of them, `history` decides how much past
is kept.

Object encoding, resource versions on the wire, and caches live in `dray.apiserver`.
"""
