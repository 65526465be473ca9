"""Where a run's metrics go besides its own files."""

from muster.recipes.options import TrainOptions
from muster.run import RunDirectory, Sink, WandbSink
from muster.run.yaml_text import load


def metric_sinks(run: RunDirectory, options: TrainOptions) -> list[Sink]:
    """Make what `options` ask for: Weights & Biases, or nothing."""
    if not options.wandb:
        return []
    config = load(run.read_config())
    sink = WandbSink(
        run.path,
        "muster",
        config,
        group=run.path.name,
        # It would redirect standard output, and write over the bar.
        settings={"console": "off", "silent": True},
    )
    return [sink]
