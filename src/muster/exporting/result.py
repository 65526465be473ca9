"""The result of an export."""

from dataclasses import dataclass
from pathlib import Path

from muster.exporting.signature import Signature


@dataclass(frozen=True)
class Proof:
    """How well a file agrees with its policy."""

    observations: int
    """Number of observations compared."""
    largest_difference: float | None
    """Largest difference of two continuous actions; None if actions are discrete."""
    different: int | None
    """Number of actions that differ; None if actions are continuous."""
    ties: int
    """How many of these have outputs that are equal up to rounding: all of them."""

    def __str__(self) -> str:
        """Return the proof on one line."""
        of = f"on {self.observations:,} observations"
        if self.different is None:
            return f"greatest difference of an action {self.largest_difference:.2g} {of}"
        if not self.different:
            return f"the same action {of}"
        return f"{self.different} different actions, all of them ties, {of}"


@dataclass(frozen=True)
class ExportResult:
    """An exported policy."""

    path: Path
    """The file."""
    to: str
    """Its format: "onnx" or "torch-export"."""
    env: str
    """Id of the environment."""
    policy_sha256: str
    """Hash of the exported weights."""
    signature: Signature
    """Its inputs and outputs."""
    proof: Proof
    """The comparison with the policy."""
    returns: tuple[float, float] | None = None
    """Mean return of the policy and of the file over the same episodes, if any were played."""
