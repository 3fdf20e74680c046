"""What may be written, and what is filled in: one plugin per file.

A plugin sees a write (`base.Admission`) before and after validation. It may change the document in
the first round, refuse in either by raising an ApiError, and read other objects through `Objects`. `chain` runs them in
Kubernetes' order. Rules about one object's own fields are not here: they are `dray.validation`.
"""
