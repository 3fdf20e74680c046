"""Streams between clients and containers: commands (`kubectl exec`), the container itself (`attach`) and its ports (`port-forward`).

They come through the API server as WebSocket or SPDY. Nothing here is imported before the first of them comes.
"""
