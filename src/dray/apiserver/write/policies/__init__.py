"""ValidatingAdmissionPolicy: rules that administrators write in CEL.

`compiled_policies` keeps the policies and bindings and compiles their expressions. `policy_validation` finds mistakes in them.
`evaluation` decides whether a policy applies to a request and evaluates it. `authorizer_library` gives expressions the
`authorizer` variable. The plugin that refuses requests is `dray.apiserver.write.admission.validating_admission_policy`.
"""
