"""`record_episodes`: plays a run's policy and writes its episodes, for `muster fit`."""

from pathlib import Path
from typing import Any

from muster.data.episodes import EpisodeWriter, check_room
from muster.envs.space_json import space_to_json
from muster.recipes.policy import LoadedPolicy
from muster.recipes.saved import OF_ENV, saved_config
from muster.run import RunDirectory
from muster.workers import Evaluation, evaluate_policy
from muster.workers.recorder import EpisodeRecorder


def record_episodes(
    policy: LoadedPolicy,
    path: str | Path,
    episodes: int = 20,
    seed: int = 0,
    run: str | Path | None = None,
) -> tuple[Evaluation, int]:
    """Play episodes greedily and write them; return the evaluation and the number of steps.

    Args:
        policy: From `load_policy`.
        path: A directory that does not exist yet, or is empty.
        episodes: Number of episodes.
        seed: Determines the start states.
        run: The run of the policy, whose environment options are recorded too. None: the run that
            the policy was loaded from, if any.
    """
    check_room(path)
    if run is None and policy.checkpoint is not None:
        run = policy.checkpoint.path
    config = {} if run is None else saved_config(RunDirectory.open(run))
    meta: dict[str, Any] = {
        "env": policy.env,
        "obs_space": space_to_json(policy.agent.obs_space),
        "action_space": space_to_json(policy.agent.action_space),
        **{name: config[name] for name in OF_ENV if config.get(name)},
        "backend": policy.backend,
    }
    with EpisodeWriter(path, meta) as writer:
        recorder = EpisodeRecorder(writer)
        found = evaluate_policy(
            policy, policy.setup, episodes, seed, recorder=recorder, backend=policy.backend
        )
    return found, writer.steps
