"""Admission: plugins that check a write, and fill in fields, under their Kubernetes names.

A plugin sees a write (`chain.Admission`) before and after validation. It may change the document in
the first round, refuse in either by raising an ApiError, and read other objects through `ObjectLookup`. `chain` has their base class and runs them; `default_plugins` says
which ones run, in Kubernetes' order. The other modules hold the plugins by what they are about. Rules about the fields of one object are in `dray.validation`.
"""
