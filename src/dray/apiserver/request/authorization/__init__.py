"""Authorization: may this user do that? RBAC, the node authorizer, and `system:masters`.

`authorizer.ServerAuthorizer` is what the server asks; the node authorizer is part of it. It and `rbac` keep their indexes up to date from the store's watch, so a
question costs a few dictionary lookups. `default_roles` lists the roles that exist from the first start; `reviews` answers the
access review kinds.
"""
