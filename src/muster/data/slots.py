"""Slots: the experience of all environments in one rollout, as arrays that a team shares.

            envs 0 1 | 2 3 | 4 5 | 6 7           a slot: the columns of some environments
    t = 0        . . | . . | . . | . .
    ...          slot 0 slot 1 ...               one array [T + 1, N, ...] or [T, N, ...] per field
    t = T        . . | . . | . . | . .           obs and value only: where the next rollout begins

Environments and policy write their rows in place, and the learner reads them there.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import DTypeLike, NDArray

from muster.data.obs import map_obs
from muster.data.schema import REWARD, TERMINATED, TRUNCATED, Column
from muster.errors import OptionError

Array = NDArray[Any]
Fields = dict[str, tuple[tuple[int, ...], DTypeLike]]


_FLOATS = ("logp", "final_value", "advantage", "target")
ROLLOUT = (REWARD, TERMINATED, TRUNCATED, *(Column(n, np.dtype(np.float32)) for n in _FLOATS))
"""The columns of every rollout, besides observations, actions and values."""


class SupportsArrays(Protocol):
    """Has arrays by name, as a `Team` does."""

    def __getitem__(self, name: str) -> Array:
        """Return the array with this name."""


@dataclass(frozen=True)
class SlotPlan:
    """The number of steps, environments and slots, and the columns of one step."""

    obs_space: gym.Space[Any]
    """As in `VectorEnv.single_observation_space`."""
    action_width: int
    """Numbers in one action, as the policy samples it."""
    action_dtype: np.dtype[Any]
    action_space: gym.Space[Any]
    """As in `VectorEnv.single_action_space`."""
    steps: int
    """T, the steps of one rollout."""
    envs: int
    """N, the environments of all slots together."""
    slots: int
    buffers: int = 1
    """Rollouts held at once: two if one is collected while another is learnt from."""
    state_width: int = 0
    """Numbers in the recurrent state; 0 if the network is not recurrent."""
    chunk: int = 1
    """Steps between stored recurrent states."""
    schema: tuple[Column, ...] = ()
    """Extra columns that the agent writes, [T, N, ...] each."""

    def __post_init__(self) -> None:
        if self.envs % self.slots:
            raise OptionError(
                f"num_envs={self.envs} and slots={self.slots} contradict each other",
                "every slot has the same number of environments",
                f"num_envs={-(-self.envs // self.slots) * self.slots}",
            )

    @property
    def width(self) -> int:
        """Environments of one slot."""
        return self.envs // self.slots

    def columns(self, slot: int) -> slice:
        """Return the environments of a slot."""
        return slice(slot * self.width, (slot + 1) * self.width)

    def span(self, slots: range) -> slice:
        """Return the environments of adjacent slots."""
        return slice(slots.start * self.width, slots.stop * self.width)

    def share(self, member: int, members: int) -> range:
        """Return the slots of one member of a team: adjacent, and divided as evenly as possible."""
        return range(self.slots * member // members, self.slots * (member + 1) // members)

    def fields(self) -> Fields:
        """Return the shared arrays of the slots."""
        lead, one = (self.buffers, self.steps, self.envs), np.float32
        fields: Fields = {
            each.name: ((*lead, *each.shape), each.dtype) for each in (*ROLLOUT, *self.schema)
        }
        fields["action"] = (*lead, self.action_width), self.action_dtype
        fields["value"] = (self.buffers, self.steps + 1, self.envs), one
        for key, (shape, dtype) in obs_fields(self.obs_space).items():
            fields["obs" + key] = ((self.buffers, self.steps + 1, self.envs, *shape), dtype)
        if self.state_width:
            chunks = self.steps // self.chunk
            fields["state"] = ((self.buffers, chunks, self.envs, self.state_width), one)
            fields["first"] = (lead, np.bool_)
        return fields


class Slots:
    """One of the rollouts that a team's memory holds.

    Attributes:
        obs: [T + 1, N, ...], or a dict of such arrays.
        action: [T, N, width].
        logp, reward, final_value, advantage, target: float32 [T, N]. `final_value` is the value of
        the true last observation of a truncated episode.
        value: float32 [T + 1, N].
        terminated, truncated: bool [T, N].
        state: float32 [T // chunk, N, state_width], or None.
        first: bool [T, N], whether an observation begins an episode; or None.
        columns: Extra columns that the agent writes, by name.
    """

    def __init__(self, plan: SlotPlan, arrays: Mapping[str, Array], buffer: int = 0) -> None:
        self.plan = plan
        self.obs: Any = join_obs(
            plan.obs_space, {name[3:]: arrays[name][buffer] for name in arrays if name[:3] == "obs"}
        )
        for name in ("action", "value", *(each.name for each in ROLLOUT)):
            setattr(self, name, arrays[name][buffer])
        self.columns = {each.name: arrays[each.name][buffer] for each in plan.schema}
        self.state: Array | None = arrays["state"][buffer] if plan.state_width else None
        self.first: Array | None = arrays["first"][buffer] if plan.state_width else None

    action: Array
    logp: Array
    value: Array
    reward: Array
    terminated: Array
    truncated: Array
    final_value: Array
    advantage: Array
    target: Array


def slots_in(plan: SlotPlan, arrays: SupportsArrays) -> list[Slots]:
    """Return all rollouts that a team's arrays hold, one for each buffer."""
    mine = {name: arrays[name] for name in plan.fields()}
    return [Slots(plan, mine, buffer) for buffer in range(plan.buffers)]


def obs_fields(space: gym.Space[Any]) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Return shape and dtype of each array of an observation, by `.key`; by "" for one array."""
    if isinstance(space, gym.spaces.Dict):
        return {f".{key}": _field(part) for key, part in space.spaces.items()}
    return {"": _field(space)}


def join_obs(space: gym.Space[Any], parts: Mapping[str, Array]) -> Any:
    """Return arrays by the keys of `obs_fields` as an observation."""
    if isinstance(space, gym.spaces.Dict):
        return {key: parts[f".{key}"] for key in space.spaces}
    return parts[""]


def obs_parts(obs: Any) -> dict[str, Array]:
    """Return an observation's arrays by the keys of `obs_fields`."""
    if isinstance(obs, Mapping):
        return {f".{key}": part for key, part in obs.items()}
    return {"": obs}


def rows_of(obs: Any, steps: int) -> Any:
    """Return the first `steps` of [T + 1, N, ...] as rows [steps * N, ...], without copying."""
    return map_obs(lambda part: part[:steps].reshape(steps * part.shape[1], *part.shape[2:]), obs)


def _field(space: gym.Space[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    dtype = np.dtype(np.int64) if isinstance(space, gym.spaces.Discrete) else space.dtype
    assert dtype is not None and space.shape is not None
    return tuple(space.shape), np.dtype(dtype)


def action_field(space: gym.Space[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of one action, as environments receive it."""
    shape = tuple(space.shape or ())
    return shape, np.dtype(space.dtype if isinstance(space, gym.spaces.Box) else np.int64)


def nbytes(fields: Fields) -> int:
    """Return the bytes of memory of arrays with these shapes."""
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in fields.values())
