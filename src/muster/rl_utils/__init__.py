"""Pure RL maths, without state."""

from muster.rl_utils.exploration import get_epsilon_greedy_fn
from muster.rl_utils.returns import n_step, td_targets

__all__ = ["get_epsilon_greedy_fn", "n_step", "td_targets"]
