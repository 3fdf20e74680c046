"""The API server's listening socket, and its pages /version and /metrics. Connections and responses are in `dray.http`."""
