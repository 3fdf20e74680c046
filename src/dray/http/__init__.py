"""HTTP/1.1 for every server of the program: connections, responses, listening sockets, health and metrics pages.

Nothing here knows Kubernetes. The API server, the dashboard, the kubelet and the other components serve their pages from here.
"""
