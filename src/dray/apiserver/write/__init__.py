"""Writes: decode, default, track field owners, admit, validate, commit; and deletion.

`object_writer` has the order of these steps and asks `dray.validation`. `decoding`, `protobuf` and `go_json_errors` read bodies and keep the text of opaque values; `managed_fields` and
`field_sets` track field owners; `patch_requests` and `patching` apply patches; `admission` and `policies` admit.

What must hold across objects at the moment of the commit is in `dray.apiserver.guard`.
"""
