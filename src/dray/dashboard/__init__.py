"""A web page over the same API as kubectl: devices by use, claims, the ledger, and why pods wait; live and read-only.

    dashboard = Dashboard(client, token, explain=...)  a handler for one path prefix, /ui
    await dashboard.stop()                           ends open pages

`watched_cluster` watches the objects through the client, which is a dump's with `dump_transport`. `object_rows`, `device_rows` and `device_health` turn them into rows,
`tables` keeps the rows encoded and finds what changed, `use_history` keeps samples of the last hours, `page_updates` sends the changes to open pages. `access` checks the token,
`application` answers HTTP, `assets` is the page itself. Decisions about devices, amounts and reasons are made in `allocator`,
`accounting` and `explain`; nothing here writes to the cluster.
"""

from dray.dashboard.access import dashboard_url, new_token
from dray.dashboard.application import PREFIX, Dashboard

__all__ = ["PREFIX", "Dashboard", "dashboard_url", "new_token"]
