"""Slots viewed as the rows that networks learn from."""

from muster.data.slots import Slots, rows_of
from muster.nets.policy_net import Rollout


def rollout_of(slots: Slots) -> Rollout:
    """Return slots as rows, without copying."""
    plan = slots.plan
    count = plan.steps * plan.envs
    return Rollout(
        rows_of(slots.obs, plan.steps),
        slots.action.reshape(count, plan.action_width),
        slots.logp.reshape(count),
        slots.value[: plan.steps].reshape(count),
        slots.advantage.reshape(count),
        slots.target.reshape(count),
        slots.state,
        None if slots.first is None else slots.first.reshape(count),
    )
