"""Steps before they are stored: their source, and their checked arrays."""

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.data.block import StepBlock
from muster.data.kernels import TRUNCATED
from muster.data.obs import Array, at
from muster.data.schema import REWARD, TERMINATED, Schema
from muster.data.schema import TRUNCATED as CUT
from muster.errors import OptionError


class FragmentSource(NamedTuple):
    """The origin of a fragment; the fragment with the next number of the same name continues it."""

    name: Hashable
    number: int


class Steps(NamedTuple):
    """Checked arrays of T steps, in the order of the schema's columns."""

    obs: list[Array]
    """[T, N, ...] each."""
    after: list[Array]
    """[N, ...] each: the observation after the last step, or after the reset that followed."""
    action: Array
    reward: Array
    end: NDArray[np.uint8]
    """[T, N]: 0, or the sum of TERMINATED and TRUNCATED."""
    finals: list[Array]
    """[E, ...] each."""
    columns: list[Array]
    """[T, N, ...] each, of the stored columns."""

    def part(self, start: int, stop: int) -> "Steps":
        """Return some of the steps."""
        stop = min(stop, len(self.end))
        ends = np.count_nonzero(self.end, axis=1).cumsum()
        first = int(ends[start - 1]) if start else 0
        after = self.after if stop == len(self.end) else [each[stop] for each in self.obs]
        return Steps(
            [each[start:stop] for each in self.obs],
            after,
            self.action[start:stop],
            self.reward[start:stop],
            self.end[start:stop],
            [each[first : int(ends[stop - 1])] for each in self.finals],
            [each[start:stop] for each in self.columns],
        )


def check_step(
    schema: Schema,
    num_envs: int,
    obs: object,
    action: object,
    reward: object,
    next_obs: object,
    terminated: object,
    truncated: object,
    **columns: object,
) -> Steps:
    """Return the arrays [N, ...] of one step of all environments, or raise OptionError."""
    lead = (num_envs,)
    now = schema.obs.split("obs", obs, lead)
    did, earned = schema.action.check(action, lead), REWARD.check(reward, lead)
    then = schema.obs.split("next_obs", next_obs, lead)
    over, cut = TERMINATED.check(terminated, lead), CUT.check(truncated, lead)
    if np.count_nonzero(over) or np.count_nonzero(cut):
        end = _ends(over, cut)
        finals = [each[end != 0] for each in then]
    else:  # nearly always, and ten times as fast
        end, finals = np.zeros(lead, np.uint8), [each[:0] for each in then]
    more = [each[None] for each in _check_columns(schema, columns, lead)]
    return Steps(
        [each[None] for each in now], then, did[None], earned[None], end[None], finals, more
    )


def check_block(schema: Schema, num_envs: int, block: StepBlock) -> Steps:
    """Return a block's arrays, or raise OptionError."""
    count = len(block.terminated)
    lead = (count, num_envs)
    obs = schema.obs.split("obs", at(block.seen, slice(None, -1)), lead)
    action, reward = schema.action.check(block.action, lead), REWARD.check(block.reward, lead)
    end = _ends(TERMINATED.check(block.terminated, lead), CUT.check(block.truncated, lead))
    after = schema.obs.split("next_obs", at(block.seen, -1), lead[1:])
    finals = schema.obs.split("final_obs", block.finals, (int(np.count_nonzero(end)),))
    columns = _check_columns(schema, block.columns, lead)
    return Steps(obs, after, action, reward, end, finals, columns)


def _check_columns(schema: Schema, given: Mapping[str, Any], lead: tuple[int, ...]) -> list[Array]:
    if not schema.columns:
        return []
    absent = sorted({each.name for each in schema.columns} - given.keys())
    if absent:
        raise OptionError(
            f"the steps have no {', '.join(absent)}",
            "this buffer was made for actors that write these columns",
            "make it without them, or have the policy's schema name them",
        )
    return [each.check(given[each.name], lead) for each in schema.columns]


def _ends(terminated: Array, truncated: Array) -> NDArray[np.uint8]:
    end: NDArray[np.uint8] = terminated + np.uint8(TRUNCATED) * truncated
    return end
