"""`PolicyGraph`: a whole greedy policy as one function of tensors.

    observation parts [, memory] -> network -> outputs -> head -> action [, next memory]

Memory is the state that the agent keeps for each environment: the state of its cell and, if the
network reads its last action, that action. It is all zeros at the beginning of an episode.
"""

import copy
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from muster.algos.q_learner import QLearner
from muster.algos.rollout_agent import RolloutAgent
from muster.algos.sac import SAC
from muster.exporting.errors import ExportError
from muster.exporting.heads import BoxHead, CategoryHead
from muster.nets.last_action import LAST_ACTION, SEEN
from muster.nets.noisy import NoisyNetwork
from muster.nets.recurrent import RecurrentActorCritic
from muster.nets.recurrent_q import RecurrentQNetwork


class PolicyGraph(nn.Module):
    """A greedy policy.

    Args:
        network: A copy of the agent's network, in evaluation mode.
        head: Converts its outputs to actions.
        keys: The parts of a Dict observation in the order of the inputs; None if it is one array.
        quantiles: Number of outputs of each action, whose mean is its value.
    """

    def __init__(
        self,
        network: nn.Module,
        head: CategoryHead | BoxHead,
        keys: list[str] | None,
        quantiles: int = 1,
    ) -> None:
        super().__init__()
        self.network = network
        self.head = head
        self.keys = keys
        self._quantiles = quantiles

    @property
    def memory_width(self) -> int:
        """Numbers of memory per environment; 0 if there is no memory."""
        return int(getattr(self.network, "state_width", 0))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return actions [B, ...], and the next memory [B, memory_width] if there is one.

        Args:
            *inputs: The parts of the observation, each [B, ...]; then the memory, if there is one.
        """
        outputs, cell = self.outputs(*inputs)
        choice = self.head.choose(outputs)
        if cell is None:
            return (self.head.to_env(choice),)
        if cell.shape[1] < self.memory_width:  # the last action is part of the memory
            cell = torch.cat([cell, (choice + 1).to(cell.dtype)], dim=1)
        return self.head.to_env(choice), cell

    def outputs(self, *inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the network's outputs [B, K], and the state of its cell after this step."""
        *parts, memory = inputs if self.memory_width else (*inputs, None)
        obs: Any = parts[0] if self.keys is None else dict(zip(self.keys, parts, strict=True))
        if isinstance(self.network, RecurrentActorCritic):
            outputs, _, cell = self.network.steps(obs, memory, None)
            return outputs, cell
        if isinstance(self.network, RecurrentQNetwork):
            assert memory is not None
            seen = _with_last_action(self.network, obs, memory)
            return self.network.steps(seen, memory[:, : self.network.body.state_width])
        made = self.network(obs)
        outputs = made[0] if isinstance(made, tuple | list) else made
        if self._quantiles > 1:
            outputs = outputs.reshape(outputs.shape[0], -1, self._quantiles).mean(dim=2)
        return outputs, None


def graph_of(agent: Any, action_space: gym.Space[Any]) -> PolicyGraph:
    """Return the greedy policy of an agent as a graph, with its own copy of the weights.

    Args:
        agent: An agent from `load_policy`.
        action_space: The environment's own space of one action.

    Raises:
        ExportError: This module does not know how the agent's algorithm forms actions.
    """
    obs_space = agent.obs_space
    keys = list(obs_space.spaces) if isinstance(obs_space, gym.spaces.Dict) else None
    network = copy.deepcopy(agent.model)
    network = network.mean if isinstance(network, NoisyNetwork) else network
    network = network.cpu().eval().requires_grad_(False)
    if isinstance(agent, RolloutAgent):
        of_rollouts = (
            BoxHead(action_space, squashed=False)
            if isinstance(action_space, gym.spaces.Box)
            else CategoryHead(agent.head.sizes, action_space)
        )
        return PolicyGraph(network, of_rollouts, keys)
    if isinstance(agent, QLearner) and isinstance(action_space, gym.spaces.Discrete):
        quantiles = agent.outputs // int(action_space.n)
        return PolicyGraph(
            network, CategoryHead([int(action_space.n)], action_space), keys, quantiles
        )
    if isinstance(agent, SAC) and isinstance(action_space, gym.spaces.Box):
        return PolicyGraph(network, BoxHead(action_space, squashed=True), keys)
    raise ExportError(
        f"a policy of {type(agent).__name__} cannot be exported",
        "how its outputs make an action is not known: its class is not derived from one of "
        "muster's agents",
        "derive it from muster.algos.TorchLossAgent, or export policy.model by torch itself",
    )


def _with_last_action(network: RecurrentQNetwork, obs: Any, memory: Tensor) -> Any:
    """Return the network's input; like `LastActionInput`, which works on arrays."""
    joined = network.last_action
    if joined is None:
        return obs
    n_actions = network.body.policy.out_features
    none_first = torch.cat([torch.zeros(1, n_actions), torch.eye(n_actions)])
    last = none_first[memory[:, -1].long()]
    if isinstance(obs, dict):
        return {**obs, LAST_ACTION: last}
    if isinstance(joined.space, gym.spaces.Dict):
        return {SEEN: obs, LAST_ACTION: last}
    return torch.cat([obs.reshape(obs.shape[0], -1).float(), last], dim=1)
