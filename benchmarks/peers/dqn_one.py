"""One timing of DQN on CartPole-v1 with one library, printed as JSON. Run by `dqn.py`.

The recipe is the zoo's: 128 updates of 64 transitions after every 256 environment steps. The clock
starts after the first updates (compilation and caches) and stops after the last phase of updates.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LEARNING_STARTS, TRAIN_EVERY, UPDATES, WARM_PHASES = 1_000, 256, 128, 4


def time_muster(hidden: list[int], env_steps: int) -> tuple[int, float]:
    """Return updates and seconds, read off the metrics that the run wrote."""
    import torch

    from muster import train

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        train(
            "dqn",
            "CartPole-v1",
            run_dir=str(run_dir),
            env_steps=env_steps,
            hidden=tuple(hidden),
            num_envs=1,
            lr=2.3e-3,
            batch_size=64,
            learning_starts=LEARNING_STARTS,
            train_every=TRAIN_EVERY,
            updates_per_train=UPDATES,
            target_update=UPDATES,
            eps_decay=8_000.0,
            stop_at=None,
            eval_every=0,
            eval_episodes=1,
            checkpoint_every=0,
            quiet=True,
        )
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    warm = next(each for each in lines if each["train_iter"] >= WARM_PHASES * UPDATES)
    last = lines[-2]  # the last line is written after the final evaluation
    return last["train_iter"] - warm["train_iter"], last["seconds"] - warm["seconds"]


def time_sb3(library: str, hidden: list[int], env_steps: int) -> tuple[int, float]:
    """Return updates and seconds of Stable-Baselines3, or of sbx, which has the same face."""
    import torch

    torch.set_num_threads(1)
    common: Any = __import__("stable_baselines3.common.callbacks", fromlist=["BaseCallback"])
    dqn: Any = __import__("sbx" if library == "sbx" else "stable_baselines3").DQN
    marks: list[tuple[int, float]] = []

    class Clock(common.BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            marks.append((self.model._n_updates, time.perf_counter()))

    model = dqn(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=LEARNING_STARTS,
        target_update_interval=10,
        train_freq=TRAIN_EVERY,
        gradient_steps=UPDATES,
        exploration_fraction=0.16,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": hidden},
        device="cpu",
        seed=0,
    )
    model.learn(env_steps, callback=Clock())
    marks = [mark for mark in marks if mark[0] >= WARM_PHASES * UPDATES]
    return marks[-1][0] - marks[0][0], marks[-1][1] - marks[0][1]


def main() -> None:
    """Time the library that the arguments name."""
    library, env_steps = sys.argv[1], int(sys.argv[3])
    hidden = [int(width) for width in sys.argv[2].split("x")]
    cpu = time.process_time()
    started = time.perf_counter()
    if library == "muster":
        updates, seconds = time_muster(hidden, env_steps)
    else:
        updates, seconds = time_sb3(library, hidden, env_steps)
    share = (time.process_time() - cpu) / (time.perf_counter() - started)
    print(json.dumps({"updates_per_s": updates / seconds, "updates": updates, "cpu_share": share}))


if __name__ == "__main__":
    main()
