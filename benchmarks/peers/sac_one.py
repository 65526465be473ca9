"""One timing of SAC on Pendulum-v1 with one library, printed as JSON. Run by `sac.py`.

One update of 256 transitions after each environment step. The clock starts after the first updates
(compilation and caches).
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BATCH, LEARNING_STARTS, WARM_UPDATES = 256, 500, 300


def time_muster(hidden: list[int], env_steps: int) -> tuple[int, float]:
    """Return updates and seconds, read off the metrics that the run wrote."""
    from muster import train

    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        train(
            "sac",
            "Pendulum-v1",
            run_dir=str(run_dir),
            env_steps=env_steps,
            hidden=tuple(hidden),
            num_envs=1,
            batch_size=BATCH,
            learning_starts=LEARNING_STARTS,
            stop_at=None,
            eval_every=0,
            eval_episodes=1,
            checkpoint_every=0,
            quiet=True,
        )
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    warm = next(each for each in lines if each["train_iter"] >= WARM_UPDATES)
    last = lines[-2]  # the last line is written after the final evaluation
    return last["train_iter"] - warm["train_iter"], last["seconds"] - warm["seconds"]


def time_sb3(library: str, hidden: list[int], env_steps: int) -> tuple[int, float]:
    """Return updates and seconds of Stable-Baselines3, or of sbx, which has the same face."""
    import torch

    torch.set_num_threads(2)
    common: Any = __import__("stable_baselines3.common.callbacks", fromlist=["BaseCallback"])
    sac: Any = __import__("sbx" if library == "sbx" else "stable_baselines3").SAC
    marks: list[tuple[int, float]] = []

    class Clock(common.BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            marks.append((self.model._n_updates, time.perf_counter()))
            return True

    model = sac(
        "MlpPolicy",
        "Pendulum-v1",
        batch_size=BATCH,
        buffer_size=100_000,
        learning_starts=LEARNING_STARTS,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": hidden},
        device="cpu",
        seed=0,
    )
    model.learn(env_steps, callback=Clock())
    marks = [mark for mark in marks if mark[0] >= WARM_UPDATES]
    return marks[-1][0] - marks[0][0], marks[-1][1] - marks[0][1]


def main() -> None:
    """Time the library that the arguments name."""
    library, env_steps = sys.argv[1], int(sys.argv[3])
    hidden = [int(width) for width in sys.argv[2].split("x")]
    cpu, started = time.process_time(), time.perf_counter()
    timed = time_muster if library == "muster" else lambda *run: time_sb3(library, *run)
    updates, seconds = timed(hidden, env_steps)
    share = (time.process_time() - cpu) / (time.perf_counter() - started)
    print(json.dumps({"updates_per_s": updates / seconds, "updates": updates, "cpu_share": share}))


if __name__ == "__main__":
    main()
