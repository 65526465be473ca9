"""The elementwise inner loops of a Q-network's update, each one pass over memory.

    forward:   z = W @ x (BLAS) -> add_bias (every layer) -> to_rows (the last one)
    backward:  dq -> to_columns -> [dW, dx (BLAS) -> through_activation] per layer
    optimiser: gradient -> adam

Inside a network a batch lies feature by feature, [features, B]: that is the order in which BLAS
multiplies torch's [out, in] weights fastest. Rows [B, actions] exist only at the ends. Arrays are
float32 and C-contiguous unless a docstring says otherwise. Each kernel stands beside its NumPy
twin (see `muster.jit`).
"""

import math

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit

Array = NDArray[np.float32]

RELU, TANH, LINEAR = 0, 1, 2
"""How a layer ends."""

TINY = np.float32(1e-30)
"""Adam's running means below this become 0, as `adam` says."""


def add_bias_numpy(z: Array, bias: Array, floor: float) -> None:
    """Twin of `add_bias`."""
    z += bias[:, None]
    np.maximum(z, np.float32(floor), out=z)


@jit(add_bias_numpy, "contract")
def add_bias(z: Array, bias: Array, floor: float) -> None:
    """z[features, B] = max(z + bias, floor): ReLU with floor 0, nothing more with -inf."""
    low = np.float32(floor)
    for j in range(z.shape[0]):
        b = bias[j]
        for i in range(z.shape[1]):
            x = z[j, i] + b
            z[j, i] = low if x < low else x  # in this order, so that NaN stays NaN


def to_rows_numpy(z: Array, bias: Array, q: Array) -> None:
    """Twin of `to_rows`."""
    np.add(z.T, bias, out=q)


@jit(to_rows_numpy, "contract")
def to_rows(z: Array, bias: Array, q: Array) -> None:
    """q[B, actions] = z[actions, B].T + bias."""
    for i in range(q.shape[0]):
        for j in range(q.shape[1]):
            q[i, j] = z[j, i] + bias[j]


def to_columns_numpy(dq: Array, d: Array, grad_bias: Array) -> None:
    """Twin of `to_columns`."""
    d[...] = dq.T
    d.sum(axis=1, out=grad_bias)


@jit(to_columns_numpy, "contract")
def to_columns(dq: Array, d: Array, grad_bias: Array) -> None:
    """d[actions, B] = dq[B, actions].T, and the gradient of the last bias."""
    for j in range(d.shape[0]):
        total = np.float32(0)
        for i in range(d.shape[1]):
            d[j, i] = dq[i, j]
            total += dq[i, j]
        grad_bias[j] = total


def through_activation_numpy(d: Array, h: Array, kind: int, grad_bias: Array) -> None:
    """Twin of `through_activation`."""
    if kind == RELU:
        d *= h > 0
    elif kind == TANH:
        d *= 1 - h * h
    d.sum(axis=1, out=grad_bias)


@jit(through_activation_numpy, "reorder")
def through_activation(d: Array, h: Array, kind: int, grad_bias: Array) -> None:
    """Take the gradient d[features, B] of a layer's output h back to before its activation.

    Also sums it over the batch, which is the gradient of the layer's bias.
    """
    one, zero = np.float32(1), np.float32(0)
    for j in range(d.shape[0]):
        total = zero
        if kind == 0:
            for i in range(d.shape[1]):
                x = d[j, i] if h[j, i] > zero else zero
                d[j, i] = x
                total += x
        elif kind == 1:
            for i in range(d.shape[1]):
                x = d[j, i] * (one - h[j, i] * h[j, i])
                d[j, i] = x
                total += x
        else:
            for i in range(d.shape[1]):
                total += d[j, i]
        grad_bias[j] = total


def fold_dueling_numpy(
    value: Array, value_bias: Array, adv: Array, adv_bias: Array, weight: Array, bias: Array
) -> None:
    """Twin of `fold_dueling`."""
    half = value.shape[1]
    weight[:, :half] = value
    weight[:, half:] = adv - adv.mean(axis=0)
    bias[:] = adv_bias - adv_bias.mean() + value_bias


@jit(fold_dueling_numpy, "contract")
def fold_dueling(
    value: Array, value_bias: Array, adv: Array, adv_bias: Array, weight: Array, bias: Array
) -> None:
    """Write a dueling head as one layer: q = V + A - mean(A) is linear in the features.

    Args:
        value: [1, half], over the first half of the features.
        value_bias: [1].
        adv: [actions, half], over the second half.
        adv_bias: [actions].
        weight: [actions, 2 * half], is written.
        bias: [actions], is written.
    """
    actions, half = adv.shape
    share = np.float32(1) / np.float32(actions)
    for k in range(half):
        mean = np.float32(0)
        for a in range(actions):
            mean += adv[a, k]
        mean *= share
        for a in range(actions):
            weight[a, k] = value[0, k]
            weight[a, half + k] = adv[a, k] - mean
    mean = np.float32(0)
    for a in range(actions):
        mean += adv_bias[a]
    mean *= share
    for a in range(actions):
        bias[a] = adv_bias[a] - mean + value_bias[0]


def unfold_dueling_numpy(
    weight: Array, bias: Array, value: Array, value_bias: Array, adv: Array, adv_bias: Array
) -> None:
    """Twin of `unfold_dueling`."""
    half = value.shape[1]
    value[0] = weight[:, :half].sum(axis=0)
    adv[...] = weight[:, half:] - weight[:, half:].mean(axis=0)
    value_bias[0] = bias.sum()
    adv_bias[:] = bias - bias.mean()


@jit(unfold_dueling_numpy, "contract")
def unfold_dueling(
    weight: Array, bias: Array, value: Array, value_bias: Array, adv: Array, adv_bias: Array
) -> None:
    """Take the gradient of the folded layer apart: the transpose of `fold_dueling`."""
    actions, half = adv.shape
    share = np.float32(1) / np.float32(actions)
    for k in range(half):
        total = np.float32(0)
        mean = np.float32(0)
        for a in range(actions):
            total += weight[a, k]
            mean += weight[a, half + k]
        mean *= share
        value[0, k] = total
        for a in range(actions):
            adv[a, k] = weight[a, half + k] - mean
    total = np.float32(0)
    for a in range(actions):
        total += bias[a]
    value_bias[0] = total
    for a in range(actions):
        adv_bias[a] = bias[a] - total * share


def adam_numpy(
    p: Array,
    m: Array,
    v: Array,
    grad: Array,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    max_norm: float,
    step: int,
) -> float:
    """Twin of `adam`."""
    wide = grad.astype(np.float64)
    norm = math.sqrt(float(np.dot(wide, wide)))
    if not math.isfinite(norm):
        return norm
    scale = np.float32(min(1.0, max_norm / (norm + 1e-6)))
    g = grad * scale
    m *= np.float32(beta1)
    m += np.float32(1 - beta1) * g
    v *= np.float32(beta2)
    g *= g
    g *= np.float32(1 - beta2)
    v += g
    m[np.abs(m) < TINY] = 0
    v[v < TINY] = 0
    np.sqrt(v, out=g)
    g *= np.float32(1 / math.sqrt(1 - beta2**step))
    g += np.float32(eps)
    np.divide(m, g, out=g)
    g *= np.float32(lr / (1 - beta1**step))
    p -= g
    return norm


@jit(adam_numpy, "reorder")
def adam(
    p: Array,
    m: Array,
    v: Array,
    grad: Array,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    max_norm: float,
    step: int,
) -> float:
    """One step of Adam (Kingma & Ba 2015) on flat vectors, its gradient clipped to `max_norm`.

    The running means of a weight without gradient, a dead ReLU's for instance, shrink with every
    step, and after some hundred they would be subnormal numbers: thirty times as slow, for good.
    So what is too small to count beside `eps` becomes 0.

    Returns:
        The gradient's norm before clipping. If it is not finite, nothing was changed.
    """
    squares = 0.0  # float64: float32 would call a gradient infinite from 1e19 on
    for i in range(grad.size):
        x = np.float64(grad[i])
        squares += x * x
    norm = math.sqrt(squares)
    if not np.isfinite(norm):
        return norm
    scale = np.float32(min(1.0, max_norm / (norm + 1e-6)))
    b1, b2 = np.float32(beta1), np.float32(beta2)
    rest1, rest2 = np.float32(1 - beta1), np.float32(1 - beta2)
    rate = np.float32(lr / (1 - beta1**step))
    unbias = np.float32(1 / math.sqrt(1 - beta2**step))
    small, zero = np.float32(eps), np.float32(0)
    for i in range(p.size):
        g = grad[i] * scale
        mean = b1 * m[i] + rest1 * g
        mean = mean if abs(mean) >= TINY else zero
        square = b2 * v[i] + rest2 * (g * g)
        square = square if square >= TINY else zero
        m[i] = mean
        v[i] = square
        p[i] -= rate * mean / (np.float32(math.sqrt(square)) * unbias + small)
    return norm
