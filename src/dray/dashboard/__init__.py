"""A web page over the same API as kubectl: devices by use, claims, the ledger, and why pods wait; live and read-only.

    dashboard = Dashboard(client, token="...")       a handler for one path prefix, /ui
    await dashboard.stop()                           ends open pages

`cluster` follows the objects, `rows` and its neighbours turn them into what the page shows, `board` keeps those rows encoded
and says what changed, `live` runs it while somebody looks, `access` lets in who has the token, `application` answers HTTP,
`assets` is the page itself. Decisions about devices, amounts and reasons are made in `allocator`, `accounting` and `explain`;
nothing here writes to the cluster.
"""

from dray.dashboard.access import dashboard_url, new_token
from dray.dashboard.application import PREFIX, Dashboard

__all__ = ["PREFIX", "Dashboard", "dashboard_url", "new_token"]
