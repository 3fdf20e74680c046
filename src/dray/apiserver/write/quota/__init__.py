"""What objects cost a namespace's quota, and which quotas they concern. Plain functions over documents.

`usage` counts objects, pods and claims; `scopes` says which quotas look at a pod. Charging happens in
`dray.apiserver.write.admission.namespace_plugins`; counting everything anew is a controller's work.
"""
