"""`--backbone RUN`: starts the convolutions of a run's network from those of another run.

    config.yaml of RUN -> the name of the network that has such convolutions (`encoder_names`)
    checkpoint of RUN  -> its trunk: the weights of the encoder, without layers and heads
                       -> in every encoder of the new agent -> <run>/checkpoints/start/step-0

Nodes start from that checkpoint, and a resumed run from its own, so RUN is needed only once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.errors import OptionError
from muster.nets.encoder_names import EncoderName
from muster.recipes.clones import is_fitted
from muster.recipes.job import FIRST_PARTS
from muster.recipes.own_modules import is_code
from muster.recipes.saved import saved_config
from muster.recipes.settings import Settings
from muster.run import Checkpoint, CheckpointStore, RunDirectory
from muster.run.directory import START

Array = NDArray[Any]

_FIRST = ("first.0.weight", "layers.0.weight")
"""The first convolution of a ResNet, and of the other encoders."""
_WITH_ENCODERS = ("policy", "critics")
"""Parts of an agent's state that hold networks which learn; targets follow them."""


@dataclass(frozen=True)
class Backbone:
    """What a run's files say about its convolutions."""

    run: RunDirectory
    model: str
    """The name of its network."""
    encoder: EncoderName | None
    """The encoder that a new run needs to compute the same; None if its name says all."""
    is_classifier: bool
    """Whether `muster fit` trained it on labelled images, which it standardised."""

    @property
    def base(self) -> str:
        """The name that a user gives."""
        return self.model if self.encoder is None else self.encoder.base


def with_backbone(settings: Settings) -> Settings:
    """Return the settings with the network that `--backbone` needs. Loads no torch.

    Raises:
        OptionError: The run's network and the model of these settings are different ones.
        RunDirectoryError: There is no such run.
    """
    path = settings.options.backbone
    if path is None:
        return settings
    found = _found(path)
    asked: Any = settings.config.model
    model = asked or "mlp"
    frozen = settings.options.freeze_backbone
    wanted = None if found.encoder is None else replace(found.encoder, frozen=frozen)
    if model not in (found.base, found.model, str(wanted)):
        raise OptionError(
            f"the backbone in {path} is of the model {found.base!r:.80}",
            f"this run's model is {model!r:.80}, which has other convolutions",
            f"--model {found.base:.80}",
        )
    if is_code(found.model):
        raise OptionError(
            f"the backbone in {path} is a network of code, {found.model!r:.80}",
            "nothing says which part of it are the convolutions",
            "--model resnet20, impala_cnn or nature_cnn, in both runs",
        )
    if wanted is None and frozen:
        raise OptionError(
            f"freeze_backbone=True is not possible with model={model}",
            "residual networks can be frozen, whose encoder is a network of its own",
            "--model impala_cnn or resnet20, or without --freeze-backbone",
        )
    if wanted is None:
        return settings
    config: Any = settings.config
    return replace(settings, config=replace(config, model=str(wanted)))


def first_parts(path: str, agent: Any) -> dict[str, Any]:
    """Return the parts of an agent's state with the convolutions of a backbone.

    Args:
        path: A run or checkpoint.
        agent: A new agent, with the network of `with_backbone`.

    Raises:
        OptionError: There are no convolutions, or they have other shapes.
    """
    found = _found(path)
    run = found.run
    checkpoint = run.checkpoints.load(run.checkpoint or run.best.path())
    trunk = _trunk(found, checkpoint)
    parts = agent.parts()
    parts = {name: parts[name] for name in _WITH_ENCODERS if name in parts}
    changed = sum(_put(each, trunk, run.path) for each in _states(parts))
    if not changed:
        raise OptionError(
            f"the network of this run has no convolutions to start from {run.path}",
            "the observations are no images: a Box of uint8 with height and width",
            "leave --backbone out",
        )
    agent.load_parts(parts)
    return parts


def save_start(run: RunDirectory, parts: dict[str, Any], meta: dict[str, Any]) -> Checkpoint:
    """Write the first weights of a run, and return them as a checkpoint."""
    store = CheckpointStore(run.checkpoints.path / START, check_writable=run.check_writable)
    counters = {"env_step": 0, "train_iter": 0}
    return store.load(store.save(0, parts, counters, {**meta, FIRST_PARTS: sorted(parts)}))


def _found(path: str) -> Backbone:
    run = RunDirectory.open(path)
    config = saved_config(run)
    model = config.get("model") or "mlp"
    # A clone's file names the environment of its episodes; a classifier has none.
    is_classifier = is_fitted(config) and "env" not in config
    encoder = EncoderName.of(str(model))
    if encoder is not None and is_classifier:
        has_norms = encoder.base.startswith("resnet")
        encoder = replace(encoder, norm=str(config.get("norm")) if has_norms else "none")
    return Backbone(run, str(model), encoder, is_classifier)


def _trunk(found: Backbone, checkpoint: Checkpoint) -> dict[str, Array]:
    """Return the weights of the encoder, by their names in it."""
    state = checkpoint.parts["policy"]
    prefix = next(_prefixes(state), None)
    if prefix is None:
        raise OptionError(
            f"the network in {checkpoint.path} has no convolutions",
            f"it is of the model {found.model!r:.80}",
            "a run of muster fit resnet20 --data ..., or of another network of images",
        )
    trunk = {
        name.removeprefix(prefix): np.array(array)
        for name, array in state.items()
        if name.startswith(prefix) and not name.endswith("num_batches_tracked")
    }
    if not found.is_classifier:
        return trunk
    mean, spread = state["standardize.mean"], state["standardize.spread"]
    if found.encoder is not None and found.encoder.norm is not None:
        return {**trunk, "input.mean": mean, "input.spread": spread}
    return _folded(trunk, mean, spread)


def _folded(trunk: dict[str, Array], mean: Array, spread: Array) -> dict[str, Array]:
    """Return the weights for pixels from 0 to 1 that were learnt for standardised ones.

    w * (x - mean) / spread = (w * 255 / spread) * (x / 255) - w * mean / spread: the last term goes
    into the bias. That is exact without padding, so for nature_cnn.
    """
    name = "layers.0.weight"
    weight = trunk[name].astype(np.float64)
    shift = np.einsum("oihw,i->o", weight, mean.astype(np.float64) / spread)
    scaled = weight * (255.0 / spread.astype(np.float64))[None, :, None, None]
    bias = trunk["layers.0.bias"] - shift
    return {**trunk, name: scaled.astype(np.float32), "layers.0.bias": bias.astype(np.float32)}


def _states(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every dict of arrays in a tree, which may be the state of a network."""
    if isinstance(tree, dict):
        if any(isinstance(value, np.ndarray) for value in tree.values()):
            yield tree
        for value in tree.values():
            yield from _states(value)


def _prefixes(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the names of each encoder's weights begin with."""
    for name, array in state.items():
        for first in _FIRST:
            prefix = name.removesuffix(first)
            if prefix == name or np.ndim(array) != 4:
                continue
            # A block of a ResNet begins like the network, but has no blocks itself.
            if first == "layers.0.weight" or f"{prefix}blocks.0.first.0.weight" in state:
                yield prefix


def _put(state: dict[str, Any], trunk: dict[str, Array], path: Path) -> int:
    """Replace the weights of all encoders in the state of a network; return their number."""
    count = 0
    for prefix in list(_prefixes(state)):
        mine = {name.removeprefix(prefix) for name in state if name.startswith(prefix)}
        if mine != trunk.keys():
            odd = sorted(mine ^ trunk.keys())[0]
            raise OptionError(
                f"the backbone in {path} does not fit: only one of the two networks has {odd!r}",
                "their encoders have another depth or kind",
                "the --model of the backbone's run",
            )
        for name, array in trunk.items():
            here = np.shape(state[prefix + name])
            if here != array.shape:
                raise OptionError(
                    f"{name!r} of the backbone in {path} has shape {array.shape}",
                    f"that of this run's network has shape {here}: its images have another number "
                    "of channels, or another size",
                    "a backbone that was trained on such images",
                )
            state[prefix + name] = array.copy()
        count += 1
    return count
