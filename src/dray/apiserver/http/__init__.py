"""The API server's listening socket. Connections and responses are in `dray.http`."""
