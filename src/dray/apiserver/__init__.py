"""A Kubernetes API server for the kinds of `dray.api.scheme`; the folders are the way of a request.

`http` listens; `request` reads what is asked, authenticates and authorizes; `server.Server.handle` then calls `read` (get, list),
`watch`, `write` (create, update, patch, delete, with admission) or `subresources`. `guard` commits claims and bindings so that
no device and no node is given away twice. `watch` also holds the caches, one per kind, that follow the store. `discovery` tells
clients what is served; `security` has certificates and the objects of a first start; `assembly` builds a whole server.

The meaning of objects is not decided here: controllers, scheduler and node agent are clients like any other.
"""
