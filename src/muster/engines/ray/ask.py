"""Asks what is at an address, in a separate process: `python ask.py HOST:PORT` prints JSON.

In the driver, Ray's client would retry for 20 seconds with a wrong token and for minutes if there
is no Ray, print each attempt, and abort the process if a token is required and missing. So it runs
here instead. This file imports nothing of muster, so that it can run as a script.
"""

import importlib
import json
import os
import sys
import time
from typing import Any

_SECONDS_FOR_NODES = 3.0


def ask(address: str) -> dict[str, Any]:
    """Return what a cluster reports about itself, first without a token and then with one."""
    from ray.exceptions import AuthenticationError

    core: Any = importlib.import_module("ray._raylet")
    found: dict[str, Any] = {"auth": False, "token": "none"}
    if core.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
        found["token"] = "some"
    try:
        os.environ["RAY_AUTH_MODE"] = "disabled"
        core.Config.initialize("")
        client = core.GcsClient(address=address)
    except AuthenticationError:
        found["auth"] = True
        if found["token"] == "none":
            return found
        os.environ["RAY_AUTH_MODE"] = "token"
        core.Config.initialize("")
        try:
            client = core.GcsClient(address=address)
        except AuthenticationError:
            return {**found, "token": "wrong"}
    # Unlike Ray's own reader, this one accepts a cluster without metadata.
    about = client.internal_kv_get(b"CLUSTER_METADATA", namespace=b"cluster")
    versions = json.loads(about) if about else {}
    dashboard = client.internal_kv_get(b"webui:url", namespace=b"dashboard") or b""
    return {
        **found,
        "ray": versions.get("ray_version"),
        "python": versions.get("python_version"),
        "dashboard": dashboard.decode(),
        "is_node": _is_node(client),
    }


def _is_node(client: Any) -> bool:
    """Whether a live node of the cluster runs on this machine; waits for one that is starting."""
    services: Any = importlib.import_module("ray._private.services")
    until = time.monotonic() + _SECONDS_FOR_NODES
    while True:
        here = set(services.find_node_ids())
        nodes = client.get_all_node_info(timeout=5)
        if any(node_id.hex() in here for node_id, node in nodes.items() if node.state == 0):
            return True
        if time.monotonic() > until:
            return False
        time.sleep(0.5)


if __name__ == "__main__":
    answer = json.dumps(ask(sys.argv[1]))
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()
    os._exit(0)  # threads of Ray's client may still wait for an answer
