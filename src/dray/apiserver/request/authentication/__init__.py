"""Authentication: client certificates, static tokens, service account tokens, impersonation.

`Authenticator` finds the User of a request or refuses the request with 401; `authenticator.impersonate` lets a user act as another
one. `dray.apiserver.request.authorization` then decides whether the user may send the request.
"""
