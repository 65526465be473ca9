"""MetricsWriter: every line is JSON, no step twice, and TensorBoard sees the same."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

from muster.errors import MusterWarning, OptionError
from muster.installs import install
from muster.run import MetricsWriter, RunDirectory, RunDirectoryError, WandbSink
from muster.run.sinks import TensorBoardSink


@pytest.fixture
def run(tmp_path):
    with RunDirectory.create(tmp_path / "run", "CartPole-v1", "dqn", 0) as made:
        yield made


def lines(run):
    def refuse(word):
        raise AssertionError(word)

    text = run.metrics.read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def board(run):
    """What TensorBoard shows: tag to list of (step, value)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run.tb), size_guidance={"scalars": 0})
    found.Reload()
    return {
        tag: [(event.step, event.value) for event in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def test_a_line_is_in_the_file_when_write_returns(run):
    with MetricsWriter(run) as metrics:
        metrics.write(10, {"train/loss": 0.5, "train/q": 2}, train_iter=3)
        (line,) = lines(run)
        assert list(line) == ["env_step", "train_iter", "seconds", "train/loss", "train/q"]
        assert (line["env_step"], line["train_iter"]) == (10, 3)
        assert (line["train/loss"], line["train/q"]) == (0.5, 2)
        assert 0 <= line["seconds"] < 60
        metrics.write(np.int64(20), {"eval/return": np.float32(1.5)})
        assert lines(run)[1]["train_iter"] == 3
    seconds = [line["seconds"] for line in lines(run)]
    assert seconds == sorted(seconds)


def test_wall_clock_jumps_do_not_reach_the_seconds(run, monkeypatch):
    import time

    with MetricsWriter(run, tensorboard=False) as metrics:
        metrics.write(1, {"a": 1.0})
        monkeypatch.setattr(time, "time", lambda: 0.0)
        metrics.write(2, {"a": 1.0})
    assert 0 <= lines(run)[1]["seconds"] - lines(run)[0]["seconds"] < 60


def test_nan_and_infinity_are_null_and_named(run):
    with MetricsWriter(run) as metrics:
        metrics.write(1, {"a": math.nan, "b": -math.inf, "c": 1.0, "d": np.float32("inf")})
    (line,) = lines(run)
    assert (line["a"], line["b"], line["c"], line["d"]) == (None, None, 1.0, None)
    assert line["nonfinite"] == {"a": "nan", "b": "-inf", "d": "inf"}
    assert math.isnan(board(run)["a"][0][1])


@pytest.mark.parametrize(
    ("value", "written"),
    [(True, 1), (np.array(2.5), 2.5), (np.ones((1, 1)), 1.0), (np.bool_(False), 0), (2**70, 2**70)],
    ids=str,
)
def test_numbers_of_every_kind_are_taken(run, value, written):
    with MetricsWriter(run) as metrics:
        metrics.write(1, {"a": value})
    assert lines(run)[0]["a"] == written


@pytest.mark.parametrize("value", ["1.5", None, [1.0], np.zeros(2), 1j, {}], ids=repr)
def test_what_is_no_number_is_refused_by_name(run, value):
    with MetricsWriter(run) as metrics:
        with pytest.raises(OptionError, match="'train/x' is not a number"):
            metrics.write(1, {"train/x": value})
        assert lines(run) == []


@pytest.mark.parametrize("name", ["env_step", "train_iter", "seconds", "nonfinite", "", 3])
def test_names_that_are_taken_are_refused(run, name):
    with MetricsWriter(run) as metrics, pytest.raises(OptionError, match="name of a metric"):
        metrics.write(1, {name: 1.0})


def test_strange_names_stay_in_one_line(run):
    name = 'a\n"b\u2028</script>\ud800'
    with MetricsWriter(run, tensorboard=False) as metrics:
        metrics.write(1, {name: 1.0})
    (line,) = lines(run)
    assert line[name] == 1.0


def test_a_metric_never_goes_back_but_others_may_be_behind(run):
    with MetricsWriter(run) as metrics:
        metrics.write(100, {"train/loss": 1.0})
        metrics.write(100, {"train/loss": 2.0}, train_iter=1)
        metrics.write(60, {"eval/return": 1.0})  # an evaluation that took its time
        with pytest.raises(OptionError, match="env_step 50 after env_step 60"):
            metrics.write(50, {"eval/return": 1.0})
        with pytest.raises(OptionError, match="env_step -1 "):
            metrics.write(-1, {"new": 1.0})
    assert len(lines(run)) == 3


def test_tensorboard_shows_the_same(run):
    with MetricsWriter(run) as metrics:
        for step in range(0, 50, 10):
            metrics.write(step, {"train/loss": step / 4, "eval/return": -step})
    assert board(run) == {
        "train/loss": [(step, step / 4) for step in range(0, 50, 10)],
        "eval/return": [(step, -step) for step in range(0, 50, 10)],
    }


def test_tensorboard_is_up_to_date_without_close(run):
    metrics = MetricsWriter(run)
    metrics.write(1, {"a": 1.0})
    assert board(run) == {"a": [(1, 1.0)]}
    metrics.close()


def test_resuming_drops_what_came_after_the_checkpoint(run):
    with MetricsWriter(run) as metrics:
        for step in range(10, 60, 10):
            metrics.write(step, {"a": float(step)}, train_iter=step // 10)
    before = lines(run)[2]["seconds"]
    with MetricsWriter(run, resume_from=30) as metrics:
        assert [line["env_step"] for line in lines(run)] == [10, 20, 30]
        with pytest.raises(OptionError, match="env_step 25 after env_step 30"):
            metrics.write(25, {"a": -1.0})
        metrics.write(35, {"b": 1.0})
        metrics.write(40, {"a": -1.0})
        with pytest.raises(OptionError, match="after env_step 40"):
            metrics.write(30, {"a": -1.0})
    assert [line["env_step"] for line in lines(run)] == [10, 20, 30, 35, 40]
    assert lines(run)[3]["train_iter"] == 3
    assert lines(run)[3]["seconds"] >= before
    assert board(run) == {"a": [(10, 10.0), (20, 20.0), (30, 30.0), (40, -1.0)], "b": [(35, 1.0)]}


def test_resuming_again_and_again_in_one_second_keeps_the_order(run, monkeypatch):
    import time

    times = iter([2e9, 2e9, 1e9, 5.0, 2e9, 2e9])  # the clock may even go back
    for step in range(0, 60, 10):
        now = next(times)
        monkeypatch.setattr(time, "time", lambda now=now: now)
        with MetricsWriter(run, resume_from=step if step else None) as metrics:
            metrics.write(step + 5, {"a": float(step)})
            metrics.write(step + 50, {"a": -1.0})  # after the next checkpoint, so it is dropped
    steps = [line["env_step"] for line in lines(run)]
    assert steps == [5, 15, 25, 35, 45, 55, 100]
    assert [step for step, _ in board(run)["a"]] == steps


def test_resuming_from_zero_drops_all_but_step_zero(run):
    with MetricsWriter(run) as metrics:
        metrics.write(0, {"a": 1.0})
        metrics.write(1, {"a": 2.0})
    with MetricsWriter(run, resume_from=0) as metrics:
        metrics.write(1, {"a": 3.0})
    assert [line["a"] for line in lines(run)] == [1.0, 3.0]
    assert board(run)["a"] == [(0, 1.0), (1, 3.0)]


WHOLE = '{"env_step": 20, "train_iter": 0, "seconds": 1.0, "a": 1.0}'


@pytest.mark.parametrize("torn", [WHOLE[:20], WHOLE, "\0\0\0", "{"])
def test_a_line_that_was_being_written_when_the_writer_died_is_dropped(run, torn):
    with MetricsWriter(run) as metrics:
        metrics.write(10, {"a": 1.0})
    with open(run.metrics, "a") as file:
        file.write(torn)
    with MetricsWriter(run, resume_from=100) as metrics:
        metrics.write(110, {"a": 2.0})
    assert [line["env_step"] for line in lines(run)] == [10, 110]


def test_unreadable_lines_in_the_middle_are_dropped_and_told(run):
    good = '{"env_step": 10, "train_iter": 0, "seconds": 1.0, "a": 1.0}\n'
    bad = ["\0" * 20, "[]", '{"env_step": "x"}', '{"env_step": 1, "train_iter": 1}', "{" * 10000]
    run.metrics.write_text(good + "\n".join(bad) + "\n" + good.replace("10", "20"))
    with pytest.warns(MusterWarning, match="5 lines"):
        metrics = MetricsWriter(run, resume_from=100)
    metrics.close()
    assert [line["env_step"] for line in lines(run)] == [10, 20]


def test_many_lines_are_kept(run):
    text = "".join(
        f'{{"env_step": {step}, "train_iter": 0, "seconds": {step}.5, "a": 1}}\n'
        for step in range(30_000)
    )
    run.metrics.write_text(text)
    with MetricsWriter(run, resume_from=25_000) as metrics:
        metrics.write(25_001, {"a": 1.0})
    found = lines(run)
    assert [line["env_step"] for line in found] == list(range(25_002))
    assert found[-1]["seconds"] >= 25_000.5


def test_metrics_that_are_there_are_not_written_over(run):
    with MetricsWriter(run) as metrics:
        metrics.write(10, {"a": 1.0})
    with pytest.raises(RunDirectoryError, match="resume_from"):
        MetricsWriter(run)


def test_a_run_that_was_opened_to_read_has_no_writer(run):
    with pytest.raises(RunDirectoryError, match="writable"):
        MetricsWriter(RunDirectory.open(run.path))


def test_a_closed_writer_says_so(run):
    metrics = MetricsWriter(run)
    metrics.close()
    metrics.close()
    with pytest.raises(RunDirectoryError, match="closed"):
        metrics.write(1, {"a": 1.0})


def test_a_full_disk_leaves_no_half_line(run, monkeypatch):
    real = os.write
    with MetricsWriter(run, tensorboard=False) as metrics:
        metrics.write(1, {"a": 1.0})

        def half(fd, data):
            if len(data) > 20:
                return real(fd, data[:20])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(
            os, "write", lambda fd, data: half(fd, data[:21] if len(data) > 40 else b"")
        )
        with pytest.raises(RunDirectoryError, match="No space left"):
            metrics.write(2, {"a": 1.0})
        monkeypatch.setattr(os, "write", real)
        metrics.write(3, {"a": 1.0})
    assert [line["env_step"] for line in lines(run)] == [1, 3]


def test_threads_may_write_at_once(run):
    with MetricsWriter(run) as metrics:

        def work(name):
            for step in range(200):
                metrics.write(step, {name: 1.0})

        threads = [threading.Thread(target=work, args=(f"m{i}",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(lines(run)) == 800
    assert all(len(points) == 200 for points in board(run).values())


def test_one_thread_at_a_time_is_in_a_sink(run):
    class Narrow:
        inside = crossed = 0

        def write(self, env_step, train_iter, seconds, values):
            self.crossed += self.inside
            self.inside += 1
            threading.Event().wait(0.02)
            self.inside -= 1

        def close(self):
            pass

    sink = Narrow()
    with MetricsWriter(run, tensorboard=False, sinks=[sink]) as metrics:
        threads = [
            threading.Thread(target=metrics.write, args=(1, {f"m{i}": 1.0})) for i in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sink.crossed == 0


class Recorder:
    def __init__(self, fails_at=None):
        self.got, self.closed, self.fails_at = [], 0, fails_at

    def write(self, env_step, train_iter, seconds, values):
        if env_step == self.fails_at:
            raise ConnectionError("gone")
        self.got.append((env_step, train_iter, dict(values)))

    def close(self):
        self.closed += 1


def test_every_sink_is_told_and_closed(run):
    sinks = [Recorder(), Recorder()]
    with MetricsWriter(run, sinks=sinks) as metrics:
        metrics.write(1, {"a": 2.0}, train_iter=7)
    assert [sink.got for sink in sinks] == [[(1, 7, {"a": 2.0})]] * 2
    assert [sink.closed for sink in sinks] == [1, 1]


def test_a_sink_that_fails_ends_and_the_run_goes_on(run):
    bad, good = Recorder(fails_at=2), Recorder()
    with MetricsWriter(run, sinks=[bad, good]) as metrics:
        metrics.write(1, {"a": 1.0})
        with pytest.warns(MusterWarning, match="Recorder failed"):
            metrics.write(2, {"a": 1.0})
        metrics.write(3, {"a": 1.0})
    assert (len(bad.got), len(good.got), len(lines(run))) == (1, 3, 3)


def test_wandb_that_is_not_installed_is_said_with_the_line_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(OptionError, match=re.escape(install("wandb"))):
        WandbSink(tmp_path, "project")


def test_wandb_gets_every_line_against_env_step(run, monkeypatch):
    calls = []
    board_run = types.SimpleNamespace(
        log=lambda values: calls.append(("log", values)),
        finish=lambda: calls.append(("finish",)),
        define_metric=lambda *args, **kwargs: calls.append(("define", args, kwargs)),
    )
    fake = types.ModuleType("wandb")
    fake.init = lambda **options: calls.append(("init", options)) or board_run
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink = WandbSink(run.path, "project", {"lr": 1}, name="n")
    with MetricsWriter(run, tensorboard=False, sinks=[sink]) as metrics:
        metrics.write(5, {"a": 1.0}, train_iter=2)
    options = {"project": "project", "dir": str(run.path), "config": {"lr": 1}, "name": "n"}
    assert calls[0] == ("init", options)
    assert calls[1] == ("define", ("*",), {"step_metric": "env_step"})
    assert calls[2][1].items() >= {"a": 1.0, "env_step": 5, "train_iter": 2}.items()
    assert calls[3] == ("finish",)


def test_tensorboard_writes_without_torch_and_only_when_asked(run):
    program = f"""
import sys
from muster.run import RunDirectory, MetricsWriter
run = RunDirectory.create({str(run.path / "inner")!r}, "e", "a", 0)
metrics = MetricsWriter(run)
assert "tensorboard" not in sys.modules
metrics.write(1, {{"a": 1.0}})
metrics.close()
import os
print(len(os.listdir(run.tb)), [n for n in ("torch", "tensorflow") if n in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == "1 []\n"


def test_an_event_file_of_another_writer_is_never_overwritten(tmp_path, monkeypatch):
    sinks = [TensorBoardSink(tmp_path) for _ in range(3)]
    for sink in sinks:
        sink.write(1, 0, 0.0, {"a": 1.0})
        sink.close()
    assert len(os.listdir(tmp_path)) == 3


@pytest.mark.timeout(600)
def test_a_killed_writer_loses_nothing_that_was_written(tmp_path):
    program = f"""
from muster.run import RunDirectory, MetricsWriter
run = RunDirectory.create({str(tmp_path / "run")!r}, "e", "a", 0)
metrics = MetricsWriter(run)
step = 0
while True:
    step += 1
    metrics.write(step, {{"a": 1.0}})
    print(step, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    for _ in range(50):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    said = [50] + [int(line) for line in process.stdout.read().split()]
    process.wait(30)
    process.stdout.close()
    with RunDirectory.open(tmp_path / "run", writable=True) as run:
        MetricsWriter(run, resume_from=10**9).close()
        steps = [line["env_step"] for line in lines(run)]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= said[-1]
        assert [step for step, _ in board(run)["a"]][: said[-1]] == steps[: said[-1]]
