"""`release`: frees the resources that machines still hold for removed placement groups.

If a machine's answer to "prepare" is lost, Ray's head assumes that nothing was prepared, and never
tells the machine to release the resources, not even when the group is removed. `release` tells the
machine directly, by the call that the head makes for other groups. A machine that holds nothing for
a group ignores the call.
"""

import contextlib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import ray

_ray: Any = ray  # its type hints lack `nodes`
_MODULES = (
    "grpc",  # a dependency of TensorBoard
    "ray._private.grpc_utils",
    "ray.core.generated.node_manager_pb2",
    "ray.core.generated.node_manager_pb2_grpc",
)
_SECONDS = 5.0


def release(groups: Sequence[Any], bundles: Sequence[Mapping[str, float]]) -> None:
    """Make every machine of the joined cluster release the bundles of some groups.

    Machines that cannot be reached keep the resources. With a Ray version that lacks the call,
    which is internal to Ray, all machines keep them.

    Args:
        groups: Placement groups of this run, all of them removed.
        bundles: The resources of each bundle of a group.
    """
    try:
        grpc, channels, messages, services = (importlib.import_module(name) for name in _MODULES)
    except ImportError:
        return
    another_ray = contextlib.suppress(AttributeError, ValueError)  # no such call, no such field
    with contextlib.ExitStack() as stack, another_ray:
        asked = []
        for machine in _ray.nodes():
            if not machine["Alive"]:
                continue
            address = f"{machine['NodeManagerAddress']}:{machine['NodeManagerPort']}"
            channel = stack.enter_context(channels.init_grpc_channel(address))
            call = services.NodeManagerServiceStub(channel).RemovePlacementGroupBundles
            for group in groups:
                request = messages.RemovePlacementGroupBundlesRequest(
                    placement_group_id=group.id.binary()
                )
                for index, bundle in enumerate(bundles):
                    held = request.bundle_specs.add(node_id=bytes.fromhex(machine["NodeID"]))
                    held.bundle_id.placement_group_id = group.id.binary()
                    held.bundle_id.bundle_index = index
                    held.unit_resources.update(bundle)
                asked.append(call.future(request, timeout=_SECONDS))
        for answer in asked:
            with contextlib.suppress(grpc.RpcError):
                answer.result()
