"""Destinations of a run's metrics besides its own files."""

from muster.recipes.options import TrainOptions
from muster.run import RunDirectory, Sink, WandbSink
from muster.run.yaml_text import load


def metric_sinks(run: RunDirectory, options: TrainOptions) -> list[Sink]:
    """Make the sinks that the options ask for: Weights & Biases, or none."""
    if not options.wandb:
        return []
    config = load(run.read_config())
    sink = WandbSink(
        run.path,
        "muster",
        config,
        group=run.path.name,
        # By default W&B redirects standard output, and overwrites the progress bar.
        settings={"console": "off", "silent": True},
    )
    return [sink]
