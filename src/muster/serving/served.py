"""The process of one served environment: answers the requests of `RemoteEnv` until it leaves."""

import contextlib
import json
import signal
import socket
import sys
import traceback
from typing import Any, NamedTuple

import gymnasium as gym

from muster.engines.join.wire import Wire
from muster.envs import remote_wire
from muster.envs.make import env_maker
from muster.envs.setup import EnvSetup
from muster.envs.space_json import space_to_json
from muster.errors import MusterError
from muster.flow.wire import CannotTravelError, can_travel
from muster.processes import end_with
from muster.recipes.env_options import WRAPPERS, env_setup

_MOST_TRACEBACK = 4_000


class EnvChoice(NamedTuple):
    """Which environment is served."""

    env: str
    wrapper: tuple[str, ...]
    kwargs: dict[str, Any]


def make_one(choice: EnvChoice) -> gym.Env[Any, Any]:
    """Make the environment, with its wrappers."""
    make = env_maker(choice.env, choice.kwargs)
    wrapper = tuple(choice.wrapper)
    WRAPPERS.check(wrapper)
    WRAPPERS.load(wrapper)
    setup = env_setup(choice.env, choice.kwargs, wrapper)
    return setup.maker(make)() if isinstance(setup, EnvSetup) else make()


def serve(wire: Wire, env: gym.Env[Any, Any], name: str) -> None:
    """Answer requests until the other end leaves."""
    about = {
        "env": name,
        "observation_space": space_to_json(env.observation_space),
        "action_space": space_to_json(env.action_space),
        "render_mode": env.render_mode,
    }
    remote_wire.send(wire, about)
    while True:
        kind, *arguments = remote_wire.receive(wire)
        try:
            answer = _answer(env, kind, arguments)
        except (Exception, SystemExit) as error:
            trace = traceback.format_exc()[-_MOST_TRACEBACK:]
            answer = (False, f"{type(error).__name__}: {error}", trace)
        try:
            remote_wire.send(wire, answer)
        except CannotTravelError as error:
            remote_wire.send(wire, (False, error.args[0], error.args[1]))


def _answer(env: gym.Env[Any, Any], kind: str, arguments: list[Any]) -> tuple[Any, ...]:
    if kind == "step":
        obs, reward, terminated, truncated, info = env.step(*arguments)
        return True, obs, reward, terminated, truncated, _sendable(info)
    if kind == "reset":
        seed, options = arguments
        obs, info = env.reset(seed=seed, options=options)
        return True, obs, _sendable(info)
    if kind == "render":
        return True, env.render()
    raise ValueError(f"there is no request {kind!r}")


def _sendable(info: Any) -> dict[str, Any]:
    """Return what of an info can be sent: an info may hold any object, for debugging."""
    if not info:
        return {}
    return {str(key): value for key, value in dict(info).items() if can_travel(value)}


def main() -> None:
    """Serve over the socket that the server has handed on."""
    fd, parent, choice = int(sys.argv[1]), int(sys.argv[2]), EnvChoice(*json.loads(sys.argv[3]))
    end_with(parent)
    wire = Wire(socket.socket(fileno=fd), remote_wire.SERVER, remote_wire.CLIENT)
    try:
        env = make_one(choice)
    except MusterError as error:
        remote_wire.send(wire, f"{error.args[0]}: {error.args[1]}")
        return
    # A server that ends closes the connection, and with it the environment. An exception in the
    # handler could come at any time, also while the process is ending.
    signal.signal(signal.SIGTERM, lambda *_: wire.close())
    with contextlib.closing(env), contextlib.suppress(OSError):
        serve(wire, env, choice.env)


if __name__ == "__main__":
    main()
