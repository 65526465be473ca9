"""What the tests of bad input share: every option, every slip of its name, every odd number."""

import types
import typing
from dataclasses import fields

from muster.algos.dqn_config import DQNConfig
from muster.recipes.options import TrainOptions

KEYS = sorted(field.name for cls in (TrainOptions, DQNConfig) for field in fields(cls))


def slips_of(key):
    """Every way to drop, double or swap a letter of a key that does not give a key."""
    dropped = {key[:i] + key[i + 1 :] for i in range(len(key))}
    doubled = {key[:i] + key[i] + key[i:] for i in range(len(key))}
    swapped = {key[:i] + key[i + 1] + key[i] + key[i + 2 :] for i in range(len(key) - 1)}
    return sorted((dropped | doubled | swapped) - set(KEYS) - {""})


SLIPS = [(slip, key) for key in KEYS for slip in slips_of(key)]


def _kind(cls, name):
    kind = typing.get_type_hints(cls)[name]
    if isinstance(kind, types.UnionType):
        kind = next(each for each in typing.get_args(kind) if each is not type(None))
    return typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind


NUMBERS = {
    field.name: _kind(cls, field.name)
    for cls in (TrainOptions, DQNConfig)
    for field in fields(cls)
    if _kind(cls, field.name) in (int, float)
}
"""Name of each option that is a number, or several: int or float."""

LEGAL = {
    "alpha": {0},
    "batch_size": set(),
    "beta_end": {0},
    "beta_start": {0},
    "buffer_size": set(),
    "burn_in": {0},
    "checkpoint_every": {0},
    "env_steps": set(),
    "eps_decay": {1e30},
    "eps_end": {0},
    "eps_start": {0},
    "eval_episodes": set(),
    "eval_max_steps": set(),
    "eval_seconds": {1e30},
    "eval_every": {0},
    "gamma": {0},
    "hidden": set(),
    "horizon": set(),
    "learning_starts": {0},
    "lr": set(),
    "lr_end": {0},
    "max_grad_norm": {1e30},
    "munchausen_alpha": {0},
    "munchausen_tau": {1e30},
    "n_step": set(),
    "learner_slots": set(),
    "learners": set(),
    "num_envs": set(),
    "overlap": set(),  # 0 is below what burn-in is by itself
    "priority_mix": {0},
    "quantiles": {0},
    "replay_shards": {0},
    "seconds": {1e30},
    "seed": {0},
    "sequence": set(),
    "stop_at": {0, -1, 1e30},
    "target_update": set(),
    "tau": set(),
    "train_every": set(),
    "updates_per_train": set(),
    "workers": {0},
}
"""Which of 0, -1 and 1e30 each number may be. NaN, infinity and words no number may be."""

ODD = ["0", "-1", "nan", "inf", "-inf", "1e30", str(10**30), "abc", ""]
CASES = [(name, text) for name in sorted(NUMBERS) for text in ODD]


def is_legal(name, text):
    try:
        value = float(text)
    except ValueError:
        return False
    if NUMBERS[name] is int and text == "1e30":
        return False
    return value in LEGAL[name]
