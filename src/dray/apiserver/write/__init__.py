"""The way of a write: decode, default, own fields, admit, validate, commit; and deletion.

What must hold across objects at the moment of the commit is in `dray.apiserver.guard`.
"""
