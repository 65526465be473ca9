"""`muster.export`: the greedy policy of a run as one file that needs no muster."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from muster.envs import make_envs
from muster.errors import OptionError
from muster.exporting.formats import opened, write
from muster.exporting.graph import graph_of
from muster.exporting.names import check_format, missing_packages
from muster.exporting.places import checked_out
from muster.exporting.playing import FilePolicy, play
from muster.exporting.proof import ENVS, ActionComparison
from muster.exporting.result import ExportResult
from muster.exporting.signature import Signature
from muster.nets.registry import Factory
from muster.recipes.policy import load_policy
from muster.recipes.saved import saved_config
from muster.run import RunDirectory
from muster.run.files import write_atomic
from muster.shown import shown
from muster.version import __version__


def export(
    run: str | Path,
    to: str = "onnx",
    out: str | Path | None = None,
    *,
    episodes: int = 0,
    seed: int = 0,
    model: str | Factory | None = None,
    env: str | None = None,
    algo: str | None = None,
    wrapper: Any = None,
) -> ExportResult:
    """Write the greedy policy of a run into one file, and prove that the file does the same.

    Args:
        run: The run directory (its best checkpoint, else the last), or a checkpoint in it.
        to: "onnx" or "torch-export".
        out: The file. None: `policy.onnx` or `policy.pt2` in the run directory. It replaces an
            older export, but no other file.
        episodes: Play so many with the policy and with the file, and return both means.
        seed: Determines the start of the episodes, and the observations that are drawn.
        model: The network, if it is your own code, as for `load_policy`.
        env: As for `load_policy`.
        algo: As for `load_policy`.
        wrapper: As for `load_policy`.

    Raises:
        ExportError: The network cannot be exported, a package is missing, or the file differs from
            the policy by more than rounding. No file is written then.
    """
    to = check_format(to)
    missing_packages(to)
    directory = RunDirectory.open(run)
    path = checked_out(to, out, directory.path)
    policy = load_policy(run, model, env, algo, wrapper)
    envs = make_envs(policy.setup, ENVS, seed, backend=policy.backend)
    try:
        graph = graph_of(policy.agent, envs.env_action_space)
        signature = Signature.of(
            envs.single_observation_space, envs.env_action_space, graph.memory_width
        )
        sha256: str = policy.agent.policy_sha256()
        about = {
            "muster": __version__,
            "env": policy.env,
            "backend": policy.backend,
            "algo": algo or saved_config(directory).get("algo"),
            "checkpoint": policy.checkpoint.path.name if policy.checkpoint else None,
            "policy_sha256": sha256,
            "observation_space": str(envs.single_observation_space),
            "action_space": str(envs.env_action_space),
            **signature.described(),
        }
        with tempfile.TemporaryDirectory() as folder:
            draft = Path(folder) / path.name
            write(to, graph, signature, json.dumps(about), draft)
            file = opened(to, draft)
            proof = ActionComparison(policy, graph, file, envs).prove(seed)
            returns = None
            if episodes:
                start = getattr(envs.env_action_space, "start", 0)
                theirs = FilePolicy(file, graph.keys, graph.memory_width, start)
                returns = play(policy, theirs, episodes, seed)
            _put(path, draft.read_bytes())
    finally:
        envs.close()
    return ExportResult(path, to, policy.env, sha256, signature, proof, returns)


def _put(path: Path, data: bytes) -> None:
    try:
        write_atomic(path, data)
    except OSError as error:
        raise OptionError(
            f"{shown(path)} could not be written: {error.strerror}",
            f"{os.path.dirname(path)} is not writable, or the disk is full",
            "--out with a path in another folder",
        ) from error
