"""What nobody may do, tried from outside against real processes.

What one room already proves by itself is not repeated here: nodes, drivers, users and anonymous callers against a server in
one process (`tests/apiserver/test_forbidden.py`), tokens and impersonation (`test_authentication.py`), RBAC and the node
authorizer (`test_authorization.py`), hostile bodies and clients (`test_attacks.py`), the cost of expressions
(`tests/cel/test_bounds.py`). `docs/threat-model.md` has the whole table.
"""
