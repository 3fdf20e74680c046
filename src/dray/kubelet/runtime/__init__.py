"""Runtimes start containers: as local processes (`process`), through a CRI socket (`cri`), or not at all (`none`).

The pod worker knows only their common `interface`.
"""
