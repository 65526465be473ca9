"""`muster play RUN`: watch a saved policy in a window, or record it."""

import contextlib
import importlib.util
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from muster.cli.arguments import parse
from muster.cli.film import KINDS, Film
from muster.cli.output import can_be_written
from muster.cli.played import check_played
from muster.errors import MusterError
from muster.installs import install

if TYPE_CHECKING:
    from muster.envs import VectorEnv
    from muster.recipes.policy import LoadedPolicy


class CannotShowError(MusterError, ValueError):
    """There is no screen, or no way to write a video."""


@dataclass(frozen=True)
class PlayOptions:
    """Show a saved policy in a window, or record it with --video."""

    run: tyro.conf.Positional[str]
    """A run directory (its best checkpoint is used), or a checkpoint in it."""
    episodes: int = 3
    """Episodes to play."""
    seed: int = 0
    """Determines the start of the episodes."""
    video: str | None = None
    """Write a video (.mp4, .gif, ...) instead of opening a window."""
    model: str | None = None
    """Network of the policy, if it is your own code: module:Class."""
    env: str | None = None
    """Environment of the policy, if it is your own code: module:Id."""
    algo: str | None = None
    """Algorithm of the policy, if it is your own code: module:name."""
    wrapper: tuple[str, ...] | None = None
    """Wrappers of the environment, if the run has any: module:Wrapper."""


def main(argv: Sequence[str]) -> int:
    """Play and print the returns."""
    options = parse(PlayOptions, argv, "muster play")
    check_played("play", options.run, options.episodes, options.seed)
    if options.video is None:
        _check_screen(options.run, sys.platform, os.environ)
    else:
        _check_video(Path(options.video), options.run)
        # Without this, pygame would look for a screen, and print an error if there is none.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    from muster.envs import make_envs
    from muster.recipes.policy import load_policy

    policy = load_policy(options.run, options.model, options.env, options.algo, options.wrapper)
    if policy.backend == "envpool":
        _check_envpool(policy.env, options)
    mode = "rgb_array" if options.video else "human"
    drawing = _can_draw(policy.env, policy.backend, mode)
    envs = make_envs(policy.setup, 1, options.seed, policy.backend, **drawing)
    if options.video is None:
        with envs:
            _play(policy, envs, options.episodes)
        return 0
    with envs, Film(Path(options.video)) as film:
        _play(policy, envs, options.episodes, film)
    print(f"wrote {options.video}")
    return 0


def _play(
    policy: "LoadedPolicy", envs: "VectorEnv", episodes: int, film: Film | None = None
) -> None:
    """Play some episodes, record them if `film` is given, and print their returns."""
    import numpy as np

    obs, first, played = envs.reset(), np.ones(1, np.bool_), 0
    policy.reset()
    while played < episodes:
        if film is not None:
            film.add(envs.render())
        action = policy.act(obs, first=first)
        obs, _, ends, cuts, info = envs.step(action)
        first = ends | cuts
        for episode in info["episodes"]:
            played += 1
            print(f"episode {played}: return {episode.return_:.1f}")


def _can_draw(env: str, backend: str, mode: str) -> dict[str, Any]:
    """Return the arguments that make an environment render; raise CannotShowError if it cannot."""
    import gymnasium as gym

    spec = gym.registry.get(env.rpartition(":")[2]) if backend == "gymnasium" else None
    if spec is not None:
        kind = (
            gym.envs.registration.load_env_creator(spec.entry_point)
            if isinstance(spec.entry_point, str)
            else spec.entry_point
        )
        modes = getattr(kind, "metadata", {}).get("render_modes")
        if modes is not None and mode not in modes:
            raise CannotShowError(
                f"{env!r} cannot be drawn as {mode!r}",
                f"it knows {', '.join(map(repr, modes)) or 'no way to draw itself'}",
                "muster eval RUN, which needs no picture",
            )
    return {"render_mode": mode}


def _check_envpool(env: str, options: PlayOptions) -> None:
    """Reject what EnvPool cannot show here, before an episode is played."""
    run = shlex.quote(options.run)
    if options.video is None:
        raise CannotShowError(
            f"{env!r} runs on EnvPool, which opens no window",
            "it draws pictures for a video only",
            f"muster play {run} --video play.mp4",
        )
    # In a separate process: without OpenGL, MuJoCo ends the process that asks it to render.
    program = (
        "import sys, envpool; pool = envpool.make(sys.argv[1], env_type='gymnasium', num_envs=1, "
        "render_mode='rgb_array'); pool.reset(); pool.render()"
    )
    tried = subprocess.run(
        [sys.executable, "-c", program, env], capture_output=True, text=True, timeout=120
    )
    if tried.returncode:
        said = [line for line in tried.stderr.splitlines() if line.strip()] or [
            "EnvPool gave no reason"
        ]
        raise CannotShowError(
            f"{env!r} cannot be drawn by EnvPool on this machine",
            said[-1].strip()[:200],
            f"apt-get install libegl1 libgl1, for MuJoCo; or muster eval {run}",
        )


def _check_video(path: Path, run: str) -> None:
    """Reject a video that could not be written, before an episode is played."""
    quoted = shlex.quote(run)
    if path.suffix.lower() not in KINDS:
        raise CannotShowError(
            f"{str(path)!r:.120} is not a supported kind of video",
            f"the kinds of videos are {', '.join(KINDS)}",
            f"muster play {quoted} --video play.mp4",
        )
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise CannotShowError(
            f"{path} cannot be written",
            "videos are written with imageio-ffmpeg, which is not installed",
            install("video"),
        )
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    if not can_be_written(path):
        raise CannotShowError(
            f"{path} cannot be written",
            "it is a directory, a pipe that nobody reads, or its folder is not writable",
            f"muster play {quoted} --video play.mp4",
        )


def _check_screen(run: str, system: str, environ: Mapping[str, str]) -> None:
    """Raise CannotShowError where a window would fail to open, or would not be visible."""
    # Windows and macOS always have a screen. A user who set SDL_VIDEODRIVER chose where to draw.
    known = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "SDL_VIDEO_DRIVER")
    if not system.startswith("linux") or any(environ.get(name) for name in known):
        return
    raise CannotShowError(
        "no screen to open a window on",
        "neither DISPLAY nor WAYLAND_DISPLAY is set, as in a container or over ssh",
        f"muster play {shlex.quote(run)} --video play.mp4",
    )
