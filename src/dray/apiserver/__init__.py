"""HTTP in, store out: a Kubernetes API server for the kinds of `dray.api.scheme`.

The heart is `server.Server`: `await server.handle(Request) -> Response`, bytes in, bytes out, no sockets. `app` wraps it in
HTTPS. A request passes `paths` (what is asked), authentication and authorization, then `reading`, `writing` or a
`subresources` entry, which follow the kind's row in `strategies`; documents are changed by `patching`, kept in order by
`managed_fields`, checked by `dray.validation`, admitted by `admission`, and written to `dray.store`. Reads and watches come
from `cache`, one shared copy per kind, encoded once.

What an object means is not decided here: controllers, scheduler and node agent are clients like any other.
"""
