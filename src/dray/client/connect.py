"""Builds a client from a kubeconfig."""

from __future__ import annotations

import os

from dray import __version__
from dray.client.kubeconfig import load_connection
from dray.client.older_resource_api import OlderResourceApi
from dray.client.rest import Client
from dray.clock import Clock


def connect(
    kubeconfig: str | os.PathLike[str] | None = None,
    *,
    context: str = "",
    component: str = "dray",
    clock: Clock | None = None,
) -> Client:
    """Returns a client for the kubeconfig's server, or for the cluster of the pod we run in. It sends nothing yet."""
    from dray.client.https import HttpsTransport  # The HTTP library is slow to import, and not needed in-process.

    transport = HttpsTransport(load_connection(kubeconfig, context))
    return Client(OlderResourceApi(transport), clock=clock, user_agent=f"{component}/{__version__}")
