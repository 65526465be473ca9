"""Log-probabilities of earlier actions under the current outputs of a network.

    outputs [n, K], action [n, width]  -> logp_of_actions -> logp [n]

`muster.rl_utils.losses.ppo` defines the meaning of the K outputs. The same sums are used here, so
an action's log-probability has the same bits as when the same outputs sampled it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit
from muster.rl_utils.losses.ppo import (
    exponentials_in_kernels,
    gaussian_logp_in_kernels,
    logp_numpy,
)

Array = NDArray[Any]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_ZERO = np.float32(0)


def logp_of_actions_numpy(
    outputs: Floats, action: Array, gaussian: bool, sizes: Ints, logp: Floats
) -> int:
    """NumPy equivalent of `logp_of_actions`."""
    if not gaussian:
        outside = ((action < 0) | (action >= sizes)).any(axis=1)
        if outside.any():
            return int(outside.argmax())
    logp[:] = logp_numpy(outputs, action, gaussian, sizes)
    return -1


@jit(logp_of_actions_numpy)
def logp_of_actions(
    outputs: Floats, action: Array, gaussian: bool, sizes: Ints, logp: Floats
) -> int:
    """Write the log-probability of an action under each row of outputs.

    Args:
        outputs: [n, K].
        action: [n, width], int64 or float32.
        gaussian: Whether the outputs are a Gaussian; otherwise categories.
        sizes: [width], number of categories of each part of an action; empty for a Gaussian.
        logp: [n], output.

    Returns:
        -1, or the first row whose action does not exist.
    """
    n, width = action.shape
    weight = np.empty(outputs.shape[1], np.float32)
    for i in range(n):
        total_logp = _ZERO
        if gaussian:
            for j in range(width):
                x = np.float32(action[i, j])
                total_logp += gaussian_logp_in_kernels(x, outputs[i, j], outputs[i, width + j])[0]
        else:
            last: Any = np.int64(0)
            for j in range(width):
                first, last = last, last + sizes[j]
                chosen = first + np.int64(action[i, j])
                if chosen < first or chosen >= last:
                    return i
                total_logp += (
                    outputs[i, chosen] - exponentials_in_kernels(outputs[i], first, last, weight)[1]
                )
        logp[i] = total_logp
    return -1
