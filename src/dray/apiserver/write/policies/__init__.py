"""ValidatingAdmissionPolicy: rules that administrators write in CEL.

`index` knows the policies and bindings there are, `matching` which requests they look at, `programs` compiles their
expressions, `problems` finds what is wrong with them, `evaluation` asks them, `authorizer_library` lets them ask the authorizer. The plugin that refuses requests is
`dray.apiserver.write.admission.validating_admission_policy`.
"""
