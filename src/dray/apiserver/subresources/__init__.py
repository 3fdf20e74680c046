"""Paths below an object: status, binding, eviction, scale, resize, logs, tokens."""
