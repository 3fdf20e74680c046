"""A Kubernetes API server for the kinds of `dray.api.scheme`; its folders are the stages of a request.

`http` listens; `request` parses, authenticates and authorizes a request; `server.Server.handle` then calls `read` (get, list),
`watch`, `write` (create, update, patch, delete, with admission) or `subresources`. `guard` commits claims and bindings so that
no device is allocated twice and no node is overbooked. `watch` also holds the caches, one per kind, that follow the store. `discovery` tells
clients what is served; `custom_resources` serves the kinds of CustomResourceDefinitions; `security` has certificates and the objects of a first start; `assembly` builds a whole server.

The server only stores and serves objects: controllers, scheduler and node agent act on them, as ordinary clients.
"""
