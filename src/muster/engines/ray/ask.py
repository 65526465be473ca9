"""What is at an address, asked in a process of its own: `python ask.py HOST:PORT` prints JSON.

Ray's client, asked in the driver, would try for 20 seconds with a wrong token and for minutes where
no Ray is, print each attempt, and abort the process where a token is wanted and there is none. It
is asked here instead. Imports nothing of muster, so that it can run as a file.
"""

import importlib
import json
import os
import sys
import time
from typing import Any

_SECONDS_FOR_NODES = 3.0


def ask(address: str) -> dict[str, Any]:
    """Return what a cluster says of itself, first without a token and then with one."""
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
    # Unlike Ray's own reader of it, this one can take a cluster that has no metadata.
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
    """Whether a live node of the cluster runs on this machine; a young one may be about to."""
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
    os._exit(0)  # threads of Ray's client may still talk to nobody
