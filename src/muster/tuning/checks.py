"""What every study checks: its options, what a resumed one may be told, and whether all failed."""

import os
from typing import Any

from muster.errors import OptionError
from muster.recipes.given import as_written
from muster.recipes.own_modules import is_code
from muster.shown import shown
from muster.tuning.errors import TrialsFailedError
from muster.tuning.space import FUNCTIONS, MAY_BE_CODE
from muster.tuning.study import Study, StudyRecord


def refuse_if_all_failed(study: Study) -> None:
    """Raise TrialsFailedError if every trial of the search failed."""
    trials = [trial for trial in study.record.trials if not trial.repeat]
    if trials and all(trial.status == "failed" for trial in trials):
        raise TrialsFailedError(
            f"all {len(trials)} trials failed",
            f"{trials[0].name}: {trials[0].problem}",
            f"less {shown(study.path / trials[0].log)}",
        )


def plain(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of all trials as plain values, and paths as absolute ones."""
    found = as_written(options)
    for name in ("from_checkpoint", "backbone"):
        if found.get(name) is not None:
            found[name] = os.path.abspath(found[name])
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
    }


def refuse_changes(changed: dict[str, Any], options: dict[str, Any]) -> None:
    """Reject options that a resumed study cannot change; the user's own code is named again."""
    names = [name for name, value in changed.items() if value is not None]
    names += [name for name in options if name not in (*MAY_BE_CODE, *FUNCTIONS)]
    if names:
        raise OptionError(
            f"a resumed study does not accept {names[0]}",
            "its settings come from its directory, so that trials can be compared",
            "only jobs and quiet together with resume, or a new study",
        )


def check_same(
    record: StudyRecord, algo: str | None, env: str | None, options: dict[str, Any]
) -> None:
    """Reject another algorithm or environment, and code that only the study's file names."""
    for name, there, here in (("algo", record.algo, algo), ("env", record.env, env)):
        if here is not None and here != there:
            raise OptionError(
                f"the study is of {name} {there!r:.80}, not of {here!r:.80}",
                "a resumed study has its own",
                "muster tune --resume DIR, without algorithm and environment",
            )
        if is_code(there) and here is None:
            raise _names_code(there)
    tried = [record.options, *(trial.settings for trial in record.trials)]
    named = {each.get(name) for each in tried for name in MAY_BE_CODE}
    if "model" in record.space:
        named |= set(record.space["model"].samples)
    functions = [each for name in FUNCTIONS for each in record.options.get(name) or ()]
    mine = {options.get(name) for name in MAY_BE_CODE}
    mine |= {each for name in FUNCTIONS for each in options.get(name) or ()}
    for code in [*sorted(str(each) for each in named if is_code(each)), *functions]:
        if code not in mine:
            raise _names_code(code)


def _names_code(code: str) -> OptionError:
    return OptionError(
        f"the study runs your own code, {code!r:.80}",
        "a file can come from anyone, so it must not choose the code that runs",
        "name it again: muster tune ALGO ENV --resume DIR --model ... --use ... --wrapper ...",
    )
