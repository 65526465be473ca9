"""`muster play RUN`: watch a saved policy in a window, or record it."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from muster.cli.arguments import parse
from muster.cli.played import check_played
from muster.errors import MusterError


class CannotShowError(MusterError, ValueError):
    """There is no screen, or no way to write a video."""


@dataclass(frozen=True)
class PlayOptions:
    """Show a saved policy in a window, or record it with --video."""

    run: tyro.conf.Positional[str]
    """A run directory (its best checkpoint is taken), or a checkpoint in it."""
    episodes: int = 3
    """Episodes to play."""
    seed: int = 0
    """Decides where they start."""
    video: str | None = None
    """Write an mp4 file in place of opening a window."""
    model: str | None = None
    """Network of the policy, if it is code of your own: module:Class."""
    env: str | None = None
    """Environment of the policy, if it is code of your own: module:Id."""


def main(argv: Sequence[str]) -> int:
    """Play and print the returns."""
    options = parse(PlayOptions, argv, "muster play")
    check_played(options.episodes, options.seed, f"muster play {options.run}")
    import gymnasium as gym

    from muster.envs import make_envs
    from muster.recipes.policy import load_policy

    policy = load_policy(options.run, options.model, options.env)
    make_envs(policy.env).close()  # names what is missing
    if options.video is None:
        _check_screen(options.run, sys.platform, os.environ)
    env = gym.make(policy.env, render_mode="rgb_array" if options.video else "human")
    frames = []
    try:
        for episode in range(options.episodes):
            obs, _ = env.reset(seed=options.seed + episode)
            policy.reset()
            total, ended = 0.0, False
            while not ended:
                if options.video:
                    frames.append(env.render())
                obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
                total, ended = total + float(reward), terminated or truncated
            print(f"episode {episode + 1}: return {total:.1f}")
    finally:
        env.close()
    if options.video:
        _write_video(Path(options.video), frames, env.metadata.get("render_fps", 30))
        print(f"wrote {options.video}")
    return 0


def _check_screen(run: str, system: str, environ: Mapping[str, str]) -> None:
    """Raise CannotShowError where a window would fail to open, or open where nobody sees it."""
    # Windows and macOS always have a screen. Whoever set SDL_VIDEODRIVER chose where to draw.
    known = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "SDL_VIDEO_DRIVER")
    if not system.startswith("linux") or any(environ.get(name) for name in known):
        return
    raise CannotShowError(
        "no screen to open a window on",
        "neither DISPLAY nor WAYLAND_DISPLAY is set, as in a container or over ssh",
        f"muster play {shlex.quote(run)} --video play.mp4",
    )


def _write_video(path: Path, frames: Sequence[object], fps: int) -> None:
    try:
        from moviepy import ImageSequenceClip  # type: ignore[import-untyped]
    except ImportError as error:
        raise CannotShowError(
            f"{path} cannot be written",
            "videos are written with moviepy, which is not installed",
            'pip install "muster-rl[video]"',
        ) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    ImageSequenceClip(frames, fps=fps).write_videofile(str(path), logger=None)
