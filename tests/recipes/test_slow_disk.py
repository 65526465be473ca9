"""A signal, and a disk that takes longer for the last checkpoint than nodes have for ending."""

import json
import time
from signal import SIGTERM

import pytest
from faulty import SLOW_SECONDS, Started


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "workers"), [("ppo", 0), ("ppo", 2), ("dqn", 0), ("dqn", 3)])
def test_the_final_checkpoint_is_written_however_slow_the_disk_is(tmp_path, algo, workers):
    flag, run_dir = tmp_path / "slow", tmp_path / "run"
    options = {"env_steps": 10**8, "eval_every": 0, "checkpoint_every": 0}
    environ = {"MUSTER_SLOW_DISK": str(flag)}
    with Started(algo, run_dir, workers, environ=environ, **options) as training:
        training.wait(lambda: training.env_step() >= 2000, "training")
        flag.touch()
        training.process.send_signal(SIGTERM)
        started = time.monotonic()
        code, said = training.end()
        seconds = time.monotonic() - started
    assert code == 143, said
    assert seconds >= SLOW_SECONDS, "the disk was not slow"
    result = json.loads((run_dir / "result.json").read_text())
    last = json.loads((run_dir / "checkpoints" / "last.json").read_text())
    assert result["stopped_by"] == "signal"
    assert str(result["env_steps"]) in json.dumps(last)
