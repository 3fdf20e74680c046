"""Bytes to requests and responses to bytes: sockets, TLS, HTTP framing, limits, health and metrics.

Nothing here knows what a request means; that is `dray.apiserver.request` and the folders behind it.
"""
