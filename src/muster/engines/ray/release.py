"""`release`: free what machines still hold for placement groups that were removed.

When the answer of a machine to "prepare" is lost, Ray's head takes it that nothing was prepared,
and never tells the machine to release it, not even when the group is removed. Here the machine is
told directly, by the call that the head makes for other groups. A machine that holds nothing for a
group takes no notice.
"""

import contextlib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import ray

_ray: Any = ray  # its types leave out `nodes`
_MODULES = (
    "grpc",  # of TensorBoard
    "ray._private.grpc_utils",
    "ray.core.generated.node_manager_pb2",
    "ray.core.generated.node_manager_pb2_grpc",
)
_SECONDS = 5.0


def release(groups: Sequence[Any], bundles: Sequence[Mapping[str, float]]) -> None:
    """Have every machine of the joined cluster release the bundles of some groups.

    Machines that cannot be reached keep what they hold, and so do all with a Ray that has no such
    call: it is one of Ray's internal ones.

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
