"""Progress of a study: a line for each trial that ends, and one that is rewritten."""

import sys

from muster.columns import cut, harmless, short_number, width
from muster.engines.logs import say
from muster.tuning.study import StudyRecord, StudyTrial


def settings_text(settings: dict[str, object]) -> str:
    """Return settings in the syntax of a grid: `lr=0.001 hidden=64+64`."""
    return " ".join(f"{name}={_value(value)}" for name, value in settings.items())


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return harmless(value)


class StudyProgress:
    """Prints the progress of a study, unless it should be quiet."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._shown = ""

    def say(self, line: str) -> None:
        """Print a separate line."""
        if not self._quiet:
            self._shown = ""
            say(line)

    def ended(self, record: StudyRecord, trial: StudyTrial, seconds: float) -> None:
        """Print the outcome of a trial. A failure is printed even if the rest is not."""
        if trial.status == "failed":
            self._shown = ""
            say(f"{trial.name} failed: {harmless(trial.problem)}")
            return
        score = short_number(trial.score)
        how = f"pruned after {trial.env_steps or 0:,} steps, at" if trial.status == "pruned" else ""
        text = f"{trial.name}: {how} return {score}".replace(":  ", ": ")
        text += f" in {seconds:.0f} s  " if seconds else ", found finished  "
        settings = cut(settings_text(trial.settings), max(10, 70 - len(text)))
        self.say(f"{text}{settings}".rstrip())

    def generation(self, record: StudyRecord, copied: list[StudyTrial]) -> None:
        """Print the beginning of a generation, and which trials have copied another one."""
        self.say(f"generation {record.generation + 1} of {record.generations}")
        for trial in copied:
            text = f"  {trial.name} copies trial {trial.takeovers[-1].source}  "
            self.say(f"{text}{cut(settings_text(trial.settings), 70 - len(text))}".rstrip())

    def running(self, record: StudyRecord, jobs: int) -> None:
        """Rewrite the last line of a terminal."""
        if self._quiet or not sys.stderr.isatty():
            return
        done = sum(trial.ended for trial in record.trials)
        best = max((t.score for t in record.trials if t.score is not None), default=None)
        confirms = sum(trial.repeat > 0 for trial in record.trials)
        total = record.trials_wanted + confirms
        line = f"{done}/{total} trials, {jobs} running, best return {short_number(best)}"
        if line != self._shown:
            self._shown = line
            sys.stderr.write(f"\r\x1b[K{cut(line, width() - 1)}")
            sys.stderr.flush()

    def close(self) -> None:
        """Clear the line that was rewritten."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = ""
