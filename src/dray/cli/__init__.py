"""The `dray` command: each file builds one command out of rooms and holds no logic of its own.

`main` knows the commands by name and imports one only when it is asked for, so that `dray --help` starts fast.
"""
