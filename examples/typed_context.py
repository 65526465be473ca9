"""Keys that a type checker knows: a subclass of Context declares them, and is used as annotation.

The subclass is never instantiated; it only tells the checker (and the reader) which keys these
middleware share.
"""

from muster import Context, Task


class TrainContext(Context):
    """The keys that the middleware below use."""

    train_iter: int
    loss: float


def train(ctx: TrainContext) -> None:
    """Halve the loss."""
    ctx.keep("train_iter", "loss")
    ctx.setdefault("train_iter", 0)
    ctx.setdefault("loss", 1.0)
    ctx.train_iter += 1
    ctx.loss /= 2


def report(ctx: TrainContext) -> None:
    """Print the progress."""
    print(f"train_iter {ctx.train_iter}  loss {ctx.loss:.3f}")
    ctx.finish = ctx.loss < 0.1


if __name__ == "__main__":
    Task().use(train).use(report).run()
