"""`RemoteEnv`: an environment that runs in another process, or on another machine.

    make_envs("remote:HOST:PORT") -> RemoteEnv -> wire -> muster serve-env -> the environment

A server that is lost (killed, restarted, cut off) is waited for. Then the running episode is
repeated there: reset with its seed, the same actions again. So an environment that depends on
nothing but seed and actions continues to the bit, and training does not notice. An episode that
comes out differently is an error, never a wrong step.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from muster.engines.join.wire import Wire
from muster.engines.local.handshake import HandshakeError
from muster.envs import remote_wire
from muster.envs.errors import EnvError, one_line
from muster.envs.space_json import space_from_json
from muster.errors import MusterWarning

RECONNECT_SECONDS, ANSWER_SECONDS = 30.0, 600.0
_AGAIN_SECONDS = 0.2
_MOST_LOSSES = 3
"""Losses at one and the same request, after which it is the environment that ends there."""
_MOST_ACTIONS = 1_000_000
"""Actions of an episode that are kept, to repeat them."""

State = tuple[Any, ...]


def remote_maker(env_id: str, kwargs: dict[str, Any]) -> Callable[[], "RemoteEnv"]:
    """Return a function that connects to one more environment of a server.

    Args:
        env_id: `remote:HOST:PORT`.
        kwargs: Arguments of `RemoteEnv`.

    Raises:
        OptionError: The address is none, or this process has no token.
    """
    address = env_id.partition(":")[2]
    remote_wire.read_address(address)
    remote_wire.secrets_here()
    return lambda: RemoteEnv(address, **kwargs)


class RemoteEnv(gym.Env[Any, Any]):
    """One environment of a server.

    Args:
        address: HOST:PORT of the server.
        reconnect_seconds: How long to wait for a server that is lost, before the run fails; 0 to
            fail at once.
        answer_seconds: Maximum seconds of one reset or step.
        render_mode: Must be that of the server, if it is given.

    Raises:
        EnvError: There is no server, or it does not know the token.
    """

    def __init__(
        self,
        address: str,
        reconnect_seconds: float = RECONNECT_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        render_mode: str | None = None,
    ) -> None:
        self._address = address
        self._place = remote_wire.read_address(address)
        self._known = remote_wire.secrets_here()
        self._reconnect, self._answer = float(reconnect_seconds), float(answer_seconds)
        self._seed: int | None = None
        self._actions: list[Any] = []
        self._last: State | None = None
        """The result of the last reset or step of the running episode."""
        self._begun = False
        self._wire: Wire | None = None
        try:
            self._wire, self._about = self._connect()
        except OSError as error:
            raise self._no_server(error) from error
        self.observation_space = space_from_json(self._about["observation_space"])
        self.action_space = space_from_json(self._about["action_space"])
        self.render_mode = self._about["render_mode"]
        if render_mode not in (None, self.render_mode):
            self.close()
            raise EnvError(
                f"the server at {address} has render_mode={self.render_mode!r}",
                f"render_mode={render_mode!r} was asked for",
                f"muster serve-env {self._about['env']} --env-kwargs render_mode={render_mode}",
            )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode there."""
        super().reset(seed=seed)
        self._seed, self._actions, self._last, self._begun = seed, [], None, False
        obs, info = self._ask(("reset", seed, options))
        self._last = obs, 0.0
        return obs, info

    def begin_step(self, action: Any) -> None:
        """Send an action, so that several servers compute at the same time; `step` must follow."""
        try:
            remote_wire.send(self._connected(), ("step", action))
            self._begun = True
        except OSError:  # `step` sends it again
            self._lose()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one step there."""
        begun, self._begun = self._begun, False
        obs, reward, terminated, truncated, info = self._ask(("step", action), is_sent=begun)
        if len(self._actions) <= _MOST_ACTIONS:
            self._actions.append(np.array(action) if isinstance(action, np.ndarray) else action)
        self._last = obs, reward
        return obs, reward, terminated, truncated, info

    def render(self) -> Any:
        """Return the picture that the server draws."""
        (frame,) = self._ask(("render",))
        return frame

    def close(self) -> None:
        """Leave the server, which then closes the environment."""
        self._lose()

    # ---- the connection

    def _ask(self, request: State, is_sent: bool = False) -> State:
        """Return the answer to a request; if the server is lost on the way, ask the next one."""
        lost: OSError | None = None
        for _ in range(_MOST_LOSSES):
            try:
                if lost is not None:
                    self._recover(lost)
                if not is_sent:
                    remote_wire.send(self._connected(), request)
                return self._answer_of(self._connected())
            except OSError as error:
                self._lose()
                # A machine that is cut off is a TimeoutError of the kernel, which has a number.
                if isinstance(error, TimeoutError) and error.errno is None:
                    raise self._failure(
                        f"did not answer within {self._answer:g} s",
                        "the environment hangs, or is slower than that",
                        "env_kwargs=answer_seconds=3600",
                    ) from error
                lost, is_sent = error, False
        assert lost is not None
        raise self._failure(
            f"was lost {_MOST_LOSSES} times at the same {request[0]}",
            f"the environment probably ends its process there ({one_line(lost)})",
            "look at the output of muster serve-env",
        ) from lost

    def _answer_of(self, wire: Wire) -> State:
        answer = remote_wire.receive(wire, self._answer)
        if not isinstance(answer, tuple) or not answer:
            raise ConnectionError("an answer that is none")
        if answer[0] is not True:
            raise RuntimeError("\n".join(map(str, answer[1:])))
        return answer[1:]

    def _connected(self) -> Wire:
        if self._wire is None:
            raise ConnectionError("the connection was lost")
        return self._wire

    def _connect(self) -> tuple[Wire, dict[str, Any]]:
        wire = remote_wire.connect(*self._place, self._known)
        try:
            about = remote_wire.receive(wire, self._answer)
        except BaseException:
            wire.close()
            raise
        if not isinstance(about, dict) or "observation_space" not in about:
            wire.close()
            raise ConnectionError(str(about)[:300])
        return wire, about

    def _lose(self) -> None:
        wire, self._wire, self._begun = self._wire, None, False
        if wire is not None:
            wire.close()

    def _recover(self, lost: OSError) -> None:
        """Wait for the server, and repeat the running episode there.

        Raises:
            EnvError: It does not come back, is another one, or the episode comes out differently.
        """
        deadline = time.monotonic() + self._reconnect
        while True:
            try:
                wire, about = self._connect()
                break
            except HandshakeError as error:  # it will not learn the token
                raise self._no_server(error) from lost
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise self._failure(
                        f"was lost, and not back within {self._reconnect:g} s",
                        f"{one_line(lost)}; then {one_line(error)}",
                        "muster serve-env there again, then muster resume the run",
                    ) from lost
            time.sleep(_AGAIN_SECONDS)
        if about != self._about:
            wire.close()
            raise self._failure(
                f"is now {about.get('env')}, with other spaces or options",
                f"this run began with {self._about['env']}",
                f"muster serve-env {self._about['env']} there, with the same options",
            )
        self._wire = wire
        if self._last is not None:
            self._repeat(lost)
        count = len(self._actions)
        warnings.warn(
            f"the server at {self._address} was lost ({one_line(lost)}) and is back; "
            f"{count} steps were repeated there",
            MusterWarning,
            stacklevel=2,
        )

    def _repeat(self, lost: OSError) -> None:
        if self._seed is None or len(self._actions) > _MOST_ACTIONS:
            raise self._failure(
                "was lost in an episode that cannot be repeated",
                "it was reset without a seed" if self._seed is None else "the episode is too long",
                "muster resume the run, which begins another episode",
            ) from lost
        wire, assumed = self._connected(), self._last
        found: State = ()
        for request in (("reset", self._seed, None), *(("step", each) for each in self._actions)):
            remote_wire.send(wire, request)
            found = self._answer_of(wire)
        obs, reward = found[0], found[1] if self._actions else 0.0
        assert assumed is not None
        if not _same(obs, assumed[0]) or reward != assumed[1]:
            self._lose()
            raise self._failure(
                "was lost, and its episode came out differently when it was repeated",
                "the environment depends on more than its seed and actions",
                "muster resume the run, which begins another episode",
            ) from lost

    def _no_server(self, error: OSError) -> EnvError:
        if isinstance(error, HandshakeError):
            return self._failure(
                "refused the connection",
                f"{error.args[0]}: {error.args[1]}",
                "the same MUSTER_TOKEN and version of muster on both sides",
            )
        return self._failure(
            "does not serve an environment", one_line(error), "muster serve-env ENV, there"
        )

    def _failure(self, what: str, why: str, fix: str) -> EnvError:
        return EnvError(f"the server at {self._address} {what}", why, fix)


def _same(one: Any, other: Any) -> bool:
    """Whether two observations have the same bits."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    a, b = np.asarray(one), np.asarray(other)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
