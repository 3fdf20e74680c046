"""Objects in memory: the follower of the store, one cache per kind, and watches. Each event is encoded once for all watchers."""
