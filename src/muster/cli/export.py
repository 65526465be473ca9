"""`muster export RUN --to onnx|torch-export`: a shell over `muster.export`."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tyro

from muster.algos.options import check_whole
from muster.cli.arguments import parse
from muster.cli.wording import as_typed
from muster.errors import OptionError
from muster.exporting.names import check_format, missing_packages
from muster.exporting.places import checked_out
from muster.recipes.options import MOST_SEED
from muster.run import RunDirectory
from muster.shown import shown

if TYPE_CHECKING:
    from muster.exporting.signature import TensorSpec


@dataclass(frozen=True)
class ExportOptions:
    """Write the greedy policy of a run into one file that needs no muster.

    Observations in, actions out; normaliser, masks and memory are included.

    Before the file is written, 1,000 of its actions are compared with the policy's.

    See docs/export.md.
    """

    run: tyro.conf.Positional[str]
    """A run directory (its best checkpoint is used), or a checkpoint in it."""
    to: str = "onnx"
    """Format: onnx, or torch-export (a .pt2 file of torch)."""
    out: str | None = None
    """The file. None: policy.onnx or policy.pt2 in the run directory."""
    episodes: int = 0
    """Also play so many episodes with the policy and with the file, and print both returns."""
    seed: int = 0
    """Determines the start of the episodes, and the observations that are drawn."""
    model: str | None = None
    """Network of the policy, if it is your own code: module:Class."""
    env: str | None = None
    """Environment of the policy, if it is your own code: module:Id."""
    algo: str | None = None
    """Algorithm of the policy, if it is your own code: module:name."""
    wrapper: tuple[str, ...] | None = None
    """Wrappers of the environment, if the run has any: module:Wrapper."""


def main(argv: Sequence[str]) -> int:
    """Export, and print the file's inputs and outputs."""
    options = parse(ExportOptions, argv, "muster export")
    prog = f"muster export {shlex.quote(options.run)}"
    try:
        check_whole("episodes", options.episodes, low=0, high=1_000_000)
        check_whole("seed", options.seed, low=0, high=MOST_SEED)
        # Before torch is imported.
        to = check_format(options.to)
        checked_out(to, options.out, RunDirectory.open(options.run).path)
        missing_packages(to)
        from muster.exporting.export import export

        told: dict[str, Any] = dict(vars(options))
        result = export(told.pop("run"), **told)
    except OptionError as error:
        raise as_typed(error, prog, ("to", "out", "episodes", "seed")) from None
    print(f"{shown(result.path)}: {result.env}, policy {result.policy_sha256[:12]}")
    print(f"  takes    {_listed(result.signature.inputs)}")
    print(f"  returns  {_listed(result.signature.outputs)}")
    print(f"  proved   {result.proof}")
    if result.returns is not None:
        mine, theirs = (f"{each:.1f}" for each in result.returns)
        print(f"  played   mean return {theirs}, of the policy itself {mine}")
    return 0


def _listed(specs: "Sequence[TensorSpec]") -> str:
    shapes = ((each, ", ".join(["batch", *map(str, each.shape)])) for each in specs)
    return ", ".join(f"{each.name} {each.dtype} [{shape}]" for each, shape in shapes)
