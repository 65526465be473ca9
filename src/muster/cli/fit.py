"""`muster fit MODEL --data PATH|digits`: a shell over `muster.fit`."""

import shlex
import signal
from collections.abc import Sequence
from dataclasses import fields, make_dataclass
from typing import Any

from muster.cli.arguments import given_names, parse, value_of
from muster.cli.wording import as_typed
from muster.errors import MusterError, OptionError
from muster.fitting.options import FitOptions
from muster.recipes.own_modules import is_code
from muster.shown import program, shown

_ABOUT = """Train a network on labelled data: muster fit MODEL --data PATH|digits

MODEL is resnet8, resnet20, resnet32, ... (6n + 2 layers), impala_cnn,
nature_cnn, mlp, or your own module:Class. Data is digits (scikit-learn's), or a
path: CIFAR-10 or CIFAR-100 as published (folder or tar.gz), a folder of images
by class, or an .npz of x_train, y_train, x_test, y_test.

Recorded episodes are data, too: a folder that muster eval RUN --save-episodes
DIR wrote, or a data set of Minari in HDF5. MODEL is then a policy that learns
their actions (behaviour cloning): muster eval FIT_RUN plays it, and muster
train ppo ENV --from-checkpoint FIT_RUN goes on from it.

Any number of replicas gives the same network, bit for bit. Ctrl-C saves and
exits; muster resume RUN continues. docs/fit.md explains it.
"""


# Options are checked when all are known, including those of a run that is resumed.
_SHOWN = {"__doc__": "All options, with their defaults:", "__post_init__": lambda self: None}
_Options: Any = make_dataclass("Options", [], bases=(FitOptions,), namespace=_SHOWN, frozen=True)


def main(argv: Sequence[str]) -> int:
    """Train, and print the result."""
    if not {"-h", "--help"}.isdisjoint(argv):
        print(_ABOUT)
        parse(_Options, ["--help"], "muster fit MODEL")
    model = argv[0] if argv and not argv[0].startswith("-") else None
    rest = argv if model is None else argv[1:]
    prog = f"muster fit {model or 'MODEL'}"
    defaults = _defaults(rest)
    chosen = parse(_Options, rest, prog, defaults)
    names = given_names(_Options, rest)
    return _run(model, {name: getattr(chosen, name) for name in names}, prog)


def resume(run: str, argv: Sequence[str], model: str | None = None) -> int:
    """Resume a run of `muster fit`, with its own settings."""
    return main([*([] if model is None else [model]), "--run-dir", run, "--resume", *argv])


def _defaults(argv: Sequence[str]) -> Any:
    """Return the defaults of options that are not given: those of the run, if one is resumed."""
    path = value_of("--run-dir", argv)
    if "--resume" not in argv or path is None:
        return None
    from muster.fitting.saved import saved_fit

    saved = saved_fit(path).options
    return _Options(**{each.name: getattr(saved, each.name) for each in fields(FitOptions)})


def _run(model: str | None, given: dict[str, Any], prog: str) -> int:
    from muster.fitting.saved import resolve
    from muster.recipes.failure import as_run_error
    from muster.recipes.models import check_model

    try:
        check_model(model)
        resolve(model, given)  # before torch is imported
        from muster.fitting.fit import fit

        result = fit(model, **given)
    except OptionError as error:
        typed = as_typed(error, prog, [each.name for each in fields(FitOptions)])
        named = _as_model(typed, prog)
        named.run_failed = error.run_failed
        raise named from None
    except MusterError:
        raise
    except Exception as error:  # from the model's own code
        raise as_run_error(error) from error
    score = "not evaluated"
    if result.test_loss is not None:
        accuracy = result.test_accuracy
        right = f"loss {result.test_loss:.4g}"
        right = right if accuracy is None else f"accuracy {100 * accuracy:.2f} %"
        score = f"test {right} of {result.test_samples:,} samples"
    print(f"{result.model} on {result.data}: {score}")
    print(
        f"{result.epochs:.4g} epochs in {result.seconds:.1f} s, "
        f"{result.samples_per_s:,.0f} samples/s, stopped by {result.stopped_by}, "
        f"model {result.model_sha256[:12]}"
    )
    run = shlex.quote(shown(result.run_dir))
    run += f" --model {result.model}" if is_code(result.model) else ""
    if result.clone is not None:
        print(f"{program('muster')} eval {run}")
    if result.stop_signal is not None:
        print(f"{program('muster')} resume {run}")
        return 128 + signal.Signals(result.stop_signal)
    return 0


def _as_model(error: OptionError, prog: str) -> OptionError:
    """Return an error whose advice names a model the way it is typed here: first."""
    what, why, fix = error.args
    if fix.startswith('model="'):
        fix = prog.rpartition(" ")[0] + " " + fix[len('model="') :].rstrip('"')
    return type(error)(what, why, fix)
