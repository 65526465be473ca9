"""What came of an export."""

from dataclasses import dataclass
from pathlib import Path

from muster.exporting.signature import Signature


@dataclass(frozen=True)
class Proof:
    """How far a file and the policy that it was made of agree."""

    observations: int
    """On which both were asked."""
    largest_difference: float | None
    """Between two numbers of continuous actions; None if actions are discrete."""
    different: int | None
    """Actions that are not the same; None if actions are continuous."""
    ties: int
    """How many of these are of outputs that are equal but for rounding. It is all of them."""

    def __str__(self) -> str:
        """Return it in one line."""
        of = f"on {self.observations:,} observations"
        if self.different is None:
            return f"greatest difference of an action {self.largest_difference:.2g} {of}"
        if not self.different:
            return f"the same action {of}"
        return f"{self.different} different actions, all of them ties, {of}"


@dataclass(frozen=True)
class ExportResult:
    """A policy in a file of its own."""

    path: Path
    """The file."""
    to: str
    """Its format: "onnx" or "torch-export"."""
    env: str
    """Id of the environment."""
    policy_sha256: str
    """Of the weights that it was made of."""
    signature: Signature
    """What it takes and returns."""
    proof: Proof
    """How it compares with the policy."""
    returns: tuple[float, float] | None = None
    """Mean return of the policy and of the file over the same episodes, if any were played."""
