"""Who may do what: RBAC from RBAC objects, the node authorizer, and `system:masters`.

`union.ServerAuthorizer` is what the server asks. `rbac` and `node` keep their indexes up to date from the store's watch, so a
question costs a few dictionary lookups. `default_roles` is what exists from the first start; `reviews` answers the
access review kinds; `refusal` puts a "no" into the words users know.
"""
