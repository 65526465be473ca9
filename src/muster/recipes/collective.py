"""The collective of torch between ranks: where it meets, and on which device."""

from typing import Any

from muster.devices import collective_device
from muster.engines.join.torch_carrier import TorchCarrier, connected_store, listening_store
from muster.recipes.join_options import Membership


def listening(joined: Membership) -> tuple[TorchCarrier, int]:
    """Return rank 0's carrier, and the port at which the others find it."""
    store, port = listening_store(joined.terms.host, joined.terms.world)
    return _carrier(joined, store), port


def meeting_at(joined: Membership, port: int) -> TorchCarrier:
    """Return the carrier of another rank."""
    return _carrier(joined, connected_store(joined.terms.host, port, joined.terms.world))


def _carrier(joined: Membership, store: Any) -> TorchCarrier:
    terms, backend = joined.terms, joined.collective
    device = collective_device(backend, terms.rank)
    return TorchCarrier(backend, terms.host, store, terms.rank, terms.world, device)
