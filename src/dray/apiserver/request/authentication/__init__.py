"""Who asks: client certificates, static tokens, service account tokens, impersonation.

`Authenticator` turns a request into a User or refuses it with 401; `impersonation` lets a user act as another one.
Whether the user may do what it asks is `dray.apiserver.request.authorization`.
"""
