"""Options of every algorithm with a policy network: the network and its optimiser."""

from dataclasses import dataclass
from typing import ClassVar

from muster.algos.options import (
    MOST_LR,
    Activation,
    check_choice,
    check_flag,
    check_number,
    check_text,
    check_whole,
    check_widths,
    refuse_together,
)
from muster.nets.registry import REMEMBERS


@dataclass(frozen=True)
class NetworkConfig:
    """The network, its optimiser, and the discount."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = frozenset(
        {"normalize_obs", "model", "hidden", "activation"}
    )
    """Options that define a run: its network."""

    gamma: float = 0.99
    """Discount per environment step."""
    normalize_obs: bool = False
    """Normalise observations to mean 0 and standard deviation 1, as part of the policy."""
    model: str | None = None
    """Another network: mlp, nature_cnn, impala_cnn, resnet8, lstm, gru, or your module:Class."""
    lr: float = 2.5e-4
    """Learning rate of Adam."""
    lr_end: float | None = None
    """Final learning rate, reached linearly over the horizon. None: constant."""
    max_grad_norm: float | None = 0.5
    """Largest norm of a gradient; larger ones are scaled down to it."""
    hidden: tuple[int, ...] = (64, 64)
    """Width of each hidden layer."""
    activation: Activation = "tanh"
    """Activation after each hidden layer."""
    bf16: bool = False
    """Compute convolutions in bfloat16, on processors with instructions for it."""
    compile: bool = False
    """Run the network through torch.compile: takes half a minute at the start; for long runs."""
    horizon: int = 500_000
    """Environment steps for which the run and its schedules are planned."""

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, high=1, low_too=True, high_too=True)
        for name in ("normalize_obs", "bf16", "compile"):
            check_flag(name, getattr(self, name))
        check_number("lr", self.lr, high=MOST_LR, high_too=True, example=2.5e-4)
        if self.lr_end is not None:
            check_number("lr_end", self.lr_end, high=MOST_LR, low_too=True, high_too=True)
        if self.max_grad_norm is not None:
            check_number("max_grad_norm", self.max_grad_norm, example=0.5)
        check_whole("horizon", self.horizon)
        check_choice("activation", self.activation, Activation)
        check_widths("hidden", self.hidden)
        check_text("model", self.model)
        if self._remembers and not self.hidden:
            why = "the last hidden layer is the recurrent one"
            refuse_together(f"model={self.model}", "hidden=()", why, "hidden=(64,)")

    @property
    def _remembers(self) -> bool:
        """Whether the network is recurrent, and learns from sequences."""
        return self.model in REMEMBERS
