"""Policies that administrators write in CEL: ValidatingAdmissionPolicy and MutatingAdmissionPolicy.

`compiled_policies` and `mutating_policies` keep the policies and bindings and compile their expressions; the latter also makes their changes.
`policy_validation` finds mistakes in them. `request_matching` decides which requests a rule means, `evaluation` whether the conditions hold and
what a policy says; `parameters` finds parameter objects, `admission_request` and `authorizer_library` make the variables `request` and `authorizer`.
The plugins are in `dray.apiserver.write.admission`.
"""
