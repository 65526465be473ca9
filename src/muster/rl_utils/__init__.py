"""Pure RL maths, without state."""

from muster.rl_utils.exploration import get_epsilon_greedy_fn

__all__ = ["get_epsilon_greedy_fn"]
