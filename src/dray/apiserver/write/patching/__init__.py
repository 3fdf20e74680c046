"""Four ways to say what should change: JSON patch, merge patch, strategic merge patch, and the merge of server-side apply.

`json_patch` has the first two, `strategic_merge` the third and `schema_patches` the fourth, which know the schema of a kind. Each is a pure function from documents to a document. Ownership, defaulting and validation of the result are the caller's.
"""
