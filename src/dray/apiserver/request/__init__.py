"""Who sends a request, what it asks for, and whether it is allowed: RequestInfo, authentication, authorization.

Nothing here reads or writes objects.
"""
