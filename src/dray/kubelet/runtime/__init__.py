"""How containers run: as local processes (`process`), through a CRI socket (`cri`), or only on paper (`none`).

`interface` is what the pod worker knows of all three.
"""
