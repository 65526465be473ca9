"""The contribution of one share to SAC's gradients: one compiled call each, without the GIL.

    of_critics:  policy in the next observations -> draw -> target critics -> targets
                 -> critics -> squared errors -> gradient of the critics
    of_policy:   policy -> draw -> critics -> lowest -> derivatives w.r.t. the action
                 -> derivatives w.r.t. the outputs -> gradient of the policy

Each step computes the same as `Critics.learn`, `Critics.judge` and the losses in `rl_utils`, with
the same bits. Two threads that each make one call do not wait for the interpreter in between.

A net is what `FusedNet.network` returns, and its room is what `FusedNet.room` returns.
"""

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit
from muster.nets.fused_layers import LAYER_PARTS
from muster.nets.fused_net_kernels import compute, compute_gradient
from muster.nets.tile import absent, keep_with
from muster.rl_utils.losses.squashed_gaussian import draw_into

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Net = tuple[Floats, Ints, Ints, Ints, bool]
Room = tuple[Floats, Floats]

_ONE, _TWO, _ZERO = np.float32(1), np.float32(2), np.float32(0)


@jit(absent, releases_lock=True)
def of_critics(
    policy: Net,
    policy_room: Room,
    target: Net,
    target_room: Room,
    critics: Net,
    critics_room: Room,
    obs: Floats,
    action: Floats,
    next_obs: Floats,
    noise: Floats,
    reward: Floats,
    discount: Floats,
    weight: Floats,
    temperature: np.float32,
    rows: int,
    looked_at: Ints,
    values: Floats,
    td_error: Floats,
    grad: Floats,
) -> float:
    """Write the gradient of the critics' loss.

    Args:
        policy: The net that acts.
        policy_room: The work space of `policy`.
        target: The net of the target critics.
        target_room: The work space of `target`.
        critics: The net of the critics.
        critics_room: The work space of `critics`.
        obs: [B, numbers].
        action: [B, A], the actions taken.
        next_obs: [B, numbers], after these actions.
        noise: [B, A], of the policy's actions in `next_obs`.
        reward: [B].
        discount: [B], the factor of the next value.
        weight: [B], importance weights.
        temperature: The weight of one unit of entropy.
        rows: Rows in the whole batch.
        looked_at: The critics that the target uses.
        values: [B, critics], output: the critics' values of the actions taken.
        td_error: [B], output: value - target, averaged over critics.
        grad: The gradient, as long as the critics' weights; overwritten.

    Returns:
        The contribution of these rows to the loss.
    """
    size, count = values.shape
    nothing = np.zeros((size, 0), np.float32)
    outputs = np.empty((size, 2 * noise.shape[1]), np.float32)
    compute(*policy, policy_room[0], next_obs, nothing, outputs)
    next_action, spread = np.empty_like(noise), np.empty_like(noise)
    logp, clipped = np.empty(size, np.float32), np.empty(noise.shape, np.bool_)
    draw_into(outputs, noise, next_action, logp, spread, clipped)
    after = np.empty((size, count), np.float32)
    compute(*target, target_room[0], next_obs, next_action, after)
    compute(*critics, critics_room[0], obs, action, values)
    by_values = np.empty((size, count), np.float32)
    whole, loss = np.float32(rows), 0.0
    for i in range(size):
        lowest = after[i, looked_at[0]]
        for k in range(1, looked_at.size):
            x = after[i, looked_at[k]]
            if x < lowest or x != x:
                lowest = x
        entropy = discount[i] * temperature * logp[i]
        goal = reward[i] - entropy + discount[i] * lowest
        total = _ZERO
        for k in range(count):
            error = values[i, k] - goal
            weighted = weight[i] * error
            loss += np.float64(weighted * error)
            by_values[i, k] = weighted / whole
            total += error
        td_error[i] = total / np.float32(count)
    compute_gradient(
        *critics, critics_room[0], critics_room[1], by_values, grad, np.zeros((0, 0), np.float32)
    )
    return float(0.5 * loss / (rows * count))


@jit(absent, releases_lock=True)
def of_policy(
    policy: Net,
    policy_room: Room,
    critics: Net,
    critics_room: Room,
    obs: Floats,
    noise: Floats,
    temperature: np.float32,
    rows: int,
    takes_lowest: bool,
    grad: Floats,
) -> tuple[float, float]:
    """Write the gradient of the policy's loss.

    Args:
        policy: The net that acts.
        policy_room: The work space of `policy`.
        critics: The net of the critics.
        critics_room: The work space of `critics`.
        obs: [B, numbers].
        noise: [B, A], of the policy's actions.
        temperature: The weight of one unit of entropy.
        rows: Rows in the whole batch.
        takes_lowest: Whether to use the lowest critic; otherwise their mean.
        grad: The gradient, as long as the policy's weights; overwritten.

    Returns:
        The sums of the loss and of logp over these rows.
    """
    size, numbers = noise.shape
    count = critics[3].size
    nothing = np.zeros((size, 0), np.float32)
    outputs = np.empty((size, 2 * numbers), np.float32)
    compute(*policy, policy_room[0], obs, nothing, outputs)
    action, spread = np.empty_like(noise), np.empty_like(noise)
    logp, clipped = np.empty(size, np.float32), np.empty(noise.shape, np.bool_)
    draw_into(outputs, noise, action, logp, spread, clipped)
    values = np.empty((size, count), np.float32)
    compute(*critics, critics_room[0], obs, action, values)
    by_values = np.empty((size, count), np.float32)
    loss, logps = 0.0, 0.0
    each = _ONE / np.float32(count)
    for i in range(size):
        best = 0
        mean = _ZERO
        for k in range(count):
            mean += values[i, k]
            if values[i, k] < values[i, best] or values[i, k] != values[i, k]:
                best = k
        q = values[i, best] if takes_lowest else mean / np.float32(count)
        for k in range(count):
            by_values[i, k] = (_ONE if k == best else _ZERO) if takes_lowest else each
        loss += np.float64(temperature * logp[i] - q)
        logps += np.float64(logp[i])
    by_action = np.empty_like(noise)
    compute_gradient(
        *critics, critics_room[0], critics_room[1], by_values, np.zeros(0, np.float32), by_action
    )
    whole = np.float32(rows)
    by_logp = temperature / whole
    for i in range(size):
        for k in range(numbers):
            a = action[i, k]
            by_u = by_action[i, k] / -whole * (_ONE - a * a) + by_logp * (_TWO * a)
            by_log_std = by_u * spread[i, k] - by_logp
            outputs[i, k] = by_u
            outputs[i, numbers + k] = _ZERO if clipped[i, k] else by_log_std
    compute_gradient(
        *policy, policy_room[0], policy_room[1], outputs, grad, np.zeros((0, 0), np.float32)
    )
    return loss, logps


for _kernel in (of_critics, of_policy):
    keep_with(_kernel, *LAYER_PARTS, compute, draw_into, jit)
