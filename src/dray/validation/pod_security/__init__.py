"""Pod Security: what the levels `baseline` and `restricted` of a namespace allow a pod to ask for.

`levels` reads the labels of a namespace, `checks` has one function for each rule and the table of them, and `evaluation` asks the rules that a
level has in a release. Who is refused, warned or only noted is decided in `dray.apiserver.write.admission.pod_runtime_plugins`.
"""
