"""One builder per kind, for tests of every room: a case names only the fields that it is about.

`manifests` builds JSON documents as a user writes them. `objects` builds the same as structs.
"""
