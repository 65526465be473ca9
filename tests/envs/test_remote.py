"""Environments over a socket: the same bits as here, lost servers, strangers, and mistakes."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import gymnasium as gym
import numpy as np
import pytest

import muster
from muster.envs import make_envs, remote_wire
from muster.envs.errors import EnvError
from muster.envs.remote import RemoteEnv
from muster.errors import MusterWarning, OptionError
from muster.serving.server import EnvServer

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("MUSTER_TOKEN", "a token of this very test")


@contextmanager
def served(env="CartPole-v1", **options):
    with EnvServer(env, quiet=True, **options) as server:
        yield server


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def test_a_remote_environment_gives_the_same_bits_as_one_here():
    here = make_envs("CartPole-v1", 3, seed=5)
    with served() as server, make_envs(f"remote:{server.address}", 3, seed=5) as there:
        assert there.single_observation_space == here.single_observation_space
        assert there.reset().tobytes() == here.reset().tobytes()
        rng = np.random.default_rng(0)
        for _ in range(120):
            actions = rng.integers(2, size=3)
            found, wanted = there.step(actions)[:-1], here.step(actions)[:-1]
            for x, y in zip(found, wanted, strict=True):
                assert x.tobytes() == y.tobytes()


def test_wrappers_and_arguments_are_the_servers(tmp_path, monkeypatch):
    (tmp_path / "my_wrappers.py").write_text(
        "import gymnasium\n"
        "class Tenfold(gymnasium.RewardWrapper):\n"
        "    def reward(self, reward): return 10 * reward\n"
    )
    monkeypatch.chdir(tmp_path)
    options = {"wrapper": ("my_wrappers:Tenfold",), "env_kwargs": {"max_episode_steps": 3}}
    with served(**options) as server:
        env = RemoteEnv(server.address)
        env.reset(seed=0)
        results = [env.step(1) for _ in range(3)]
        env.close()
    assert [result[1] for result in results] == [10.0] * 3
    assert results[-1][3] is True


def test_environments_of_a_server_compute_at_the_same_time(tmp_path, monkeypatch):
    (tmp_path / "meeting_env.py").write_text(
        "import os, pathlib, time, gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Meeting(CartPoleEnv):\n"
        "    def step(self, action):\n"
        "        pathlib.Path(f'begun-{os.getpid()}').touch()\n"
        "        deadline = time.monotonic() + 60\n"
        "        while len(list(pathlib.Path().glob('begun-*'))) < 3:\n"
        "            assert time.monotonic() < deadline, 'the others have not begun their step'\n"
        "            time.sleep(0.01)\n"
        "        return super().step(action)\n"
        "gymnasium.register('Meeting-v0', Meeting)\n"
    )
    monkeypatch.chdir(tmp_path)
    with served("meeting_env:Meeting-v0") as server:
        envs = make_envs(f"remote:{server.address}", 3)
        envs.reset()
        assert envs.step(np.zeros(3, np.int64))[1].tolist() == [1.0] * 3
        envs.close()


@contextmanager
def server_process(port, env="CartPole-v1"):
    words = [sys.executable, "-m", "muster", "serve-env", env, "--port", str(port)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert "is served at" in process.stderr.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


class ReplacedServer:
    """A server that is killed, and another one that is started in its place."""

    def __init__(self, port, seconds_apart):
        self.first = server_process(port)
        self.process = self.first.__enter__()
        self.second = None
        self._port, self._apart = port, seconds_apart

    def kill_in_fourth_loop(self, ctx):
        if ctx.total_step != 3 or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait() == -signal.SIGKILL
        threading.Thread(target=self._start).start()

    def _start(self):
        time.sleep(self._apart)
        self.second = server_process(self._port)
        self.second.__enter__()

    def close(self):
        for each in (self.first, self.second):
            if each is not None:
                each.__exit__(None, None, None)


SMALL = {
    "env_steps": 4_096,
    "num_envs": 4,
    "hidden": (8,),
    "eval_every": 0,
    "eval_episodes": 2,
    "stop_at": None,
    "lr": 1e-3,
    "horizon": 100_000,
    "quiet": True,
}


def test_a_server_killed_and_started_again_in_mid_training_changes_no_bit(tmp_path):
    plain = muster.train("ppo", "CartPole-v1", run_dir=tmp_path / "here", workers=0, **SMALL)
    port = free_port()
    replacement = ReplacedServer(port, seconds_apart=1.0)
    try:
        with pytest.warns(MusterWarning, match="was lost .* and is back; .* steps were repeated"):
            away = muster.train(
                "ppo", f"remote:127.0.0.1:{port}", run_dir=tmp_path / "away", workers=0,
                use=[replacement.kill_in_fourth_loop], **SMALL,
            )  # fmt: skip
    finally:
        replacement.close()
    assert replacement.second is not None
    assert away.policy_sha256 == plain.policy_sha256
    saved = json.loads((tmp_path / "away" / "result.json").read_text())
    assert saved["env_steps"] == 4_096


def test_a_server_that_stays_away_ends_the_run_with_a_name(tmp_path):
    with served() as server:
        env = f"remote:{server.address}"
        envs = make_envs(env, 2, reconnect_seconds=0.5)
        envs.reset()
    with pytest.raises(EnvError, match=r"was lost, and not back within 0\.5 s") as raised:
        envs.step(np.zeros(2, np.int64))
    assert raised.value.env == 0 and "muster serve-env" in raised.value.args[2]
    envs.close()


def test_an_episode_that_comes_out_differently_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "fickle.py").write_text(
        "import os, gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Fickle(CartPoleEnv):\n"
        "    def reset(self, **options):\n"
        "        obs, info = super().reset(**options)\n"
        "        self.state[0] = obs[0] = os.getpid()\n"
        "        return obs, info\n"
        "gymnasium.register('Fickle-v0', Fickle)\n"
    )
    monkeypatch.chdir(tmp_path)
    port = free_port()
    with served("fickle:Fickle-v0", port=port) as server:
        env = RemoteEnv(server.address)
        env.reset(seed=1)
        env.step(0)
    differently = pytest.raises(EnvError, match="came out differently when it was repeated")
    with served("fickle:Fickle-v0", port=port), differently:
        env.step(1)
    env.close()


def test_another_environment_at_the_same_address_is_refused():
    port = free_port()
    with served(port=port) as server:
        env = RemoteEnv(server.address)
        env.reset(seed=1)
    refused = pytest.raises(EnvError, match="is now Acrobot-v1, with other spaces")
    with served("Acrobot-v1", port=port), refused:
        env.step(1)
    env.close()


def test_a_stranger_without_the_token_is_refused_and_others_go_on(monkeypatch):
    with served() as server:
        friend = RemoteEnv(server.address)
        monkeypatch.setenv("MUSTER_TOKEN", "another token, and a wrong one")
        with pytest.raises(EnvError, match="refused the connection"):
            RemoteEnv(server.address)
        host, port = server.address.split(":")
        for rubbish in (b"GET / HTTP/1.1\r\n\r\n" * 20, os.urandom(4_000), b""):
            with socket.create_connection((host, int(port))) as sock:
                sock.sendall(rubbish)
        friend.reset(seed=0)
        assert friend.step(1)[1] == 1.0
        friend.close()


def test_what_an_environment_raises_is_told_with_its_traceback(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Broken(CartPoleEnv):\n"
        "    def step(self, action): raise ValueError('the pole is broken')\n"
        "gymnasium.register('Broken-v0', Broken)\n"
    )
    monkeypatch.chdir(tmp_path)
    with served("broken:Broken-v0") as server, make_envs(f"remote:{server.address}", 2) as envs:
        envs.reset()
        with pytest.raises(EnvError, match="ValueError: the pole is broken") as raised:
            envs.step(np.zeros(2, np.int64))
    assert "broken.py" in str(raised.value.__cause__)


def test_an_environment_that_dies_there_is_made_again_by_the_server():
    with served() as server:
        env = RemoteEnv(server.address)
        before, _ = env.reset(seed=3)
        (process,) = server._processes
        process.kill()
        with pytest.warns(MusterWarning, match="was lost"):
            after = env.step(1)[0]
        env.close()
    here = gym.make("CartPole-v1")
    assert here.reset(seed=3)[0].tobytes() == before.tobytes()
    assert here.step(1)[0].tobytes() == after.tobytes()


def test_an_environment_that_ends_its_process_again_and_again_is_given_up(tmp_path, monkeypatch):
    (tmp_path / "ending.py").write_text(
        "import gymnasium, os\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Ending(CartPoleEnv):\n"
        "    def step(self, action): os._exit(3)\n"
        "gymnasium.register('Ending-v0', Ending)\n"
    )
    monkeypatch.chdir(tmp_path)
    with served("ending:Ending-v0") as server:
        env = RemoteEnv(server.address)
        env.reset(seed=0)
        given_up = pytest.raises(EnvError, match="was lost 3 times at the same step")
        with pytest.warns(MusterWarning, match="and is back"), given_up:
            env.step(0)
        env.close()


def test_a_connection_that_the_kernel_gives_up_counts_as_lost(monkeypatch):
    with served() as server:
        env = RemoteEnv(server.address)
        env.reset(seed=0)
        receive, cut_off = remote_wire.receive, [TimeoutError(errno.ETIMEDOUT, "cut off")]

        def receive_or_fail(*arguments):
            if cut_off:
                raise cut_off.pop()
            return receive(*arguments)

        monkeypatch.setattr(remote_wire, "receive", receive_or_fail)
        with pytest.warns(MusterWarning, match="was lost .*cut off"):
            assert env.step(0)[1] == 1.0
        env.close()


def test_more_environments_than_allowed_are_refused():
    with served(most=1) as server:
        first = RemoteEnv(server.address)
        with pytest.raises(EnvError, match="does not serve an environment"):
            RemoteEnv(server.address)
        first.close()


def test_a_server_that_ends_closes_its_environments(tmp_path, monkeypatch):
    (tmp_path / "closing.py").write_text(
        "import gymnasium, pathlib\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Closing(CartPoleEnv):\n"
        "    def close(self): pathlib.Path('closed').touch()\n"
        "gymnasium.register('Closing-v0', Closing)\n"
    )
    monkeypatch.chdir(tmp_path)
    with served("closing:Closing-v0") as server:
        (tmp_path / "closed").unlink()  # of the one that was made to look at it
        env = RemoteEnv(server.address)
        env.reset(seed=0)
    assert (tmp_path / "closed").exists()
    env.close()


def test_a_server_ends_with_its_environments():
    port = free_port()
    with server_process(port) as process:
        env = RemoteEnv(f"127.0.0.1:{port}", reconnect_seconds=0)
        env.reset(seed=0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
        with pytest.raises(EnvError, match="was lost"):
            env.step(0)
        env.close()


def test_a_remote_environment_is_evaluated_and_resumed(tmp_path):
    with served() as server:
        env = f"remote:{server.address}"
        first = muster.train("ppo", env, run_dir=tmp_path / "run", workers=2, **SMALL)
        more = muster.resume(tmp_path / "run", env_steps=6_144, quiet=True)
    whole = muster.train(
        "ppo", "CartPole-v1", run_dir=tmp_path / "whole", workers=0, **{**SMALL, "env_steps": 6_144}
    )
    assert first.env_steps == 4_096 and more.policy_sha256 == whole.policy_sha256


@pytest.mark.parametrize(
    ("env", "what"),
    [
        ("remote:nowhere", "is not the address of a server"),
        ("remote:127.0.0.1:99999", "is not the address of a server"),
        ("remote:127.0.0.1:1", "does not serve an environment"),
    ],
)
def test_a_wrong_address_is_said(env, what):
    with pytest.raises((OptionError, EnvError), match=what):
        make_envs(env)


def test_without_a_token_nothing_is_served(monkeypatch):
    monkeypatch.delenv("MUSTER_TOKEN")
    with pytest.raises(OptionError, match="a remote environment and its server have no token"):
        EnvServer("CartPole-v1")
    with pytest.raises(OptionError, match="have no token"):
        make_envs("remote:127.0.0.1:5555")


def test_a_typo_is_answered_with_the_nearest_environment(capsys):
    from muster.cli.main import main

    assert main(["serve-env", "CartPole-v7"]) == 2
    assert "muster serve-env CartPole-v1" in capsys.readouterr().err
    assert main(["serve-env", "CartPole-v1", "--host", "203.0.113.7"]) == 2
    assert "cannot listen at 203.0.113.7:0" in capsys.readouterr().err
    assert main(["serve-env", "CartPole-v1", "--host", ""]) == 2
    assert main(["serve-env", "CartPole-v1", "--most", "0"]) == 2
    assert "--most 0 is not possible" in capsys.readouterr().err
