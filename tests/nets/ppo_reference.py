"""PPO's loss written once more, in torch, for autograd: what gradients are compared with."""

import numpy as np
import torch
from torch.distributions import Categorical, Normal

from muster.nets.action_head import ActionHead
from muster.nets.policy_net import LossTerms, Rollout


def distribution_terms(head: ActionHead, outputs, action):
    """Return log-probabilities [B] of actions [B, width], and entropies [B]."""
    if head.gaussian:
        mean, log_std = outputs.chunk(2, dim=1)
        parts = [Normal(mean, log_std.exp())]
        logps = [parts[0].log_prob(action).sum(1)]
        entropies = [parts[0].entropy().sum(1)]
    else:
        parts = [Categorical(logits=part) for part in outputs.split(head.sizes, dim=1)]
        logps = [part.log_prob(action[:, i]) for i, part in enumerate(parts)]
        entropies = [part.entropy() for part in parts]
    return sum(logps), sum(entropies)


def loss_and_stats(head: ActionHead, outputs, value, rollout: Rollout, rows, terms: LossTerms):
    """Return the loss of the rows, and the five numbers of STATS."""
    names = ("action", "logp", "value", "advantage", "target")
    rows = torch.from_numpy(rows)
    action, old_logp, old_value, advantage, target = (
        torch.from_numpy(getattr(rollout, name))[rows] for name in names
    )
    logp, entropy = distribution_terms(head, outputs, action)
    ratio = (logp - old_logp).exp()
    cut = ratio.clamp(1 - terms.clip, 1 + terms.clip)
    policy = -torch.minimum(ratio * advantage, cut * advantage)
    value = value.reshape(-1)
    error = (value - target) ** 2
    if terms.value_clip:
        near = old_value + (value - old_value).clamp(-terms.value_clip, terms.value_clip)
        error = torch.maximum(error, (near - target) ** 2)
    sums = [
        policy,
        0.5 * error,
        entropy,
        ratio - 1 - (logp - old_logp),
        ((ratio - 1).abs() > terms.clip).float(),
    ]
    stats = [part.sum() * terms.scale for part in sums]
    loss = stats[0] + terms.value_coef * stats[1] - terms.entropy_coef * stats[2]
    return loss, np.array([float(part.detach()) for part in stats])


def autograd(module, loss):
    """Return the gradient of a loss by all parameters of a module, as one vector."""
    parameters = list(module.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = zip(gradients, parameters, strict=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs]
    ).numpy()


def some_rollout(rng, head: ActionHead, obs, n: int, **more) -> Rollout:
    """Return n rows that nobody experienced, with numbers as they come."""
    if head.gaussian:
        action = rng.normal(size=(n, head.width)).astype(np.float32)
        logp = rng.normal(-1.4 * head.width, 0.3, n)
    else:
        action = np.stack([rng.integers(0, size, n) for size in head.sizes], axis=1)
        logp = rng.normal(-np.log(head.sizes).sum(), 0.3, n)
    floats = [np.asarray(x, np.float32) for x in (logp, *rng.normal(size=(3, n)))]
    return Rollout(obs, action, *floats, **more)
