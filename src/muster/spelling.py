"""The nearest match of a misspelt name: one rule for options, models and files.

"lrr" -> "lr",  "bacth_size" -> "batch_size",  "learning_rate" of other frameworks -> "lr"
"""

import difflib
from collections.abc import Iterable

_ELSEWHERE = {
    "buffer_capacity": "buffer_size",
    "clip_coef": "clip",
    "clip_range": "clip",
    "discount": "gamma",
    "ent_coef": "entropy_coef",
    "exploration_final_eps": "eps_end",
    "exploration_initial_eps": "eps_start",
    "gradient_steps": "updates_per_train",
    "learning_rate": "lr",
    "log_dir": "run_dir",
    "max_steps": "env_steps",
    "n_env": "num_envs",
    "n_envs": "num_envs",
    "n_epochs": "epochs",
    "n_eval_episodes": "eval_episodes",
    "n_steps": "rollout",
    "net_arch": "hidden",
    "num_minibatches": "minibatches",
    "num_steps": "rollout",
    "num_timesteps": "env_steps",
    "num_workers": "workers",
    "output_dir": "run_dir",
    "policy_kwargs": "hidden",
    "save_dir": "run_dir",
    "target_network_frequency": "target_update",
    "target_update_interval": "target_update",
    "timesteps": "env_steps",
    "total_steps": "env_steps",
    "total_timesteps": "env_steps",
    "train_freq": "train_every",
    "train_frequency": "train_every",
    "update_epochs": "epochs",
    "vf_coef": "value_coef",
}
"""The name of an option in other frameworks, and its name here."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name of which `name` is a misspelling, or None if none is near.

    A slip of one key (a letter dropped, doubled, changed, or two swapped) is recognised in names of
    any length; difflib alone finds no match of "rl" for "lr".
    """
    candidates = sorted(known)
    same = [each for each in candidates if each.lower() == name.lower()]
    if same:
        return same[0]
    for form in (str, lambda text: text.replace("_", "-")):  # Python's spelling, the command line's
        here = form(_ELSEWHERE.get(name.replace("-", "_"), ""))
        if here in candidates:
            return here
    near = difflib.get_close_matches(name, candidates, n=5, cutoff=0.6)
    slips = [each for each in candidates if is_one_slip(name, each)]
    if not slips:
        return near[0] if near else None
    return max(slips, key=lambda each: difflib.SequenceMatcher(None, name, each).ratio())


def is_one_slip(one: str, other: str) -> bool:
    """Whether the two differ by one slip: a letter added, dropped or changed, or two swapped."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    rest, other_rest = one[start:], other[start:]
    return (
        rest[1:] == other_rest
        or rest == other_rest[1:]
        or rest[1:] == other_rest[1:]
        or (rest[1::-1] == other_rest[:2] and rest[2:] == other_rest[2:])
    )
