"""A signal handler of the user that exits while an environment runs: the env has not failed."""

import functools
import signal
import sys

import gymnasium as gym
import numpy as np
import pytest

import muster
from muster.cli.main import main
from muster.envs import EnvError, make_envs
from muster.framework.signals import is_signal_exit

CODE = 42


class Interrupted(gym.Env):
    """Receives SIGTERM in one of its calls; a handler that it installs replaces muster's."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, call="step", after=0, handler=None):
        self.call, self.left, self.handler = call, after, handler
        self.runs("init")

    def runs(self, call):
        if call == self.call:
            self.left -= 1
            if self.left < 0:
                if self.handler is not None:
                    signal.signal(signal.SIGTERM, self.handler)
                signal.raise_signal(signal.SIGTERM)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.runs("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.runs("step")
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def close(self):
        self.runs("close")


def leave(number, frame):
    leave_now()


def leave_now():
    sys.exit(CODE)


class Handler:
    def __call__(self, number, frame):
        sys.exit(CODE)


def passed_on(handler):
    @functools.wraps(handler)
    def wrapper(*args):
        return handler(*args)

    return wrapper


def with_reason(reason, number, frame):
    sys.exit(CODE)


@pytest.fixture
def handle():
    """Install a handler of SIGTERM for one test."""
    before = signal.getsignal(signal.SIGTERM)
    yield lambda handler: signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    "handler",
    [
        leave,
        Handler(),
        lambda *_: sys.exit(CODE),
        passed_on(leave),
        functools.partial(with_reason, "a test"),
    ],
    ids=["function", "object", "lambda", "decorated", "partial"],
)
@pytest.mark.parametrize("call", ["init", "reset", "step", "close"])
def test_an_exit_that_a_handler_asks_for_is_no_failure_of_the_env(handle, handler, call):
    handle(handler)
    with pytest.raises(SystemExit) as left:  # EnvError before
        envs = make_envs(lambda: Interrupted(call), num_envs=1)
        envs.reset()
        envs.step(np.zeros(1, np.int64))
        envs.close()
    assert left.value.code == CODE and is_signal_exit(left.value)


def test_an_exit_that_the_env_asks_for_is_one_although_a_handler_exists(handle):
    handle(leave)

    class Exits(Interrupted):
        def runs(self, call):
            if call == self.call:
                leave_now()

    envs = make_envs(lambda: Exits("step"), num_envs=1)
    envs.reset()
    with pytest.raises(EnvError, match=f"step of env 0 .* failed: SystemExit: {CODE}"):
        envs.step(np.zeros(1, np.int64))


@pytest.fixture
def interrupted_id():
    gym.register("Interrupted-v0", Interrupted, kwargs={"after": 30, "handler": leave})
    yield "Interrupted-v0"
    del gym.registry["Interrupted-v0"]


@pytest.mark.usefixtures("handle")
def test_a_run_ends_with_the_code_that_a_handler_asks_for(interrupted_id, tmp_path):
    with pytest.raises(SystemExit) as left:
        muster.train(
            "dqn", interrupted_id, env_steps=512, num_envs=2, quiet=True,
            run_dir=str(tmp_path / "run"),
        )  # fmt: skip
    assert left.value.code == CODE
    assert not (tmp_path / "run" / "result.json").exists()


@pytest.mark.usefixtures("handle")
def test_so_does_doctor(interrupted_id):
    with pytest.raises(SystemExit) as left:
        main(["doctor", interrupted_id])
    assert left.value.code == CODE
