"""`PacedRun`: a training run on a thread of its own, which goes on only when its caller asks.

    caller ──begin, GoOn, Ask, Close, signals──> thread: `run_training`, its nodes, its gate
    caller <──Ready, Arrived, Answered, Ended───── thread

There is one way to train: the thread runs what `muster.train` runs, with a gate in its loop
(recipes/gate.py). The caller waits in short intervals, so Ctrl-C interrupts every wait. An
interrupted iteration goes on to its end, and the next call finds it there.
"""

import atexit
import queue
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.errors import TaskError
from muster.flow.wire import unpack
from muster.framework.driver import StopSignal
from muster.recipes.gate import Answered, Arrived, Ask, Close, GoOn
from muster.recipes.pacing import Pacing, Ready
from muster.recipes.result import RunResult
from muster.recipes.step_result import StepResult
from muster.recipes.train import run_training

_TURN_S = 1.0
_ABANDON_S = 10.0
"""Seconds that killed nodes have to be gone."""
_EXIT_S = 60.0
"""Seconds that a run has to end and save when Python exits."""


@dataclass(frozen=True)
class _Ended:
    """The thread has ended."""

    result: RunResult | None
    error: BaseException | None = None


class PacedRun:
    """Prepares a run on construction; raises what `muster.train` would raise.

    Args:
        algo: As for `muster.train`.
        env: As for `muster.train`.
        config: As for `muster.train`.
        options: As for `muster.train`.
    """

    def __init__(
        self, algo: str | None, env: str | None, config: str | Path | None, options: dict[str, Any]
    ) -> None:
        self.result: RunResult | None = None
        """The result, once the run has ended well."""
        self.error: BaseException | None = None
        """What ended the run, if it failed."""
        self.ready: Ready | None = None
        """The prepared run; None if it had reached its limit before."""
        self.report: Arrived | None = None
        """The last report of the gate."""
        self._pacing = Pacing()
        self._asked = 0
        self.has_begun = False
        """Whether the first step was asked for; or the run was closed instead."""
        self._wanted: int | None = None
        """The environment step that ends the iteration in progress; None for the run's choice."""
        self._is_stepping = False
        self._stands = False
        """Whether the run waits at its gate, as far as the caller has heard."""
        self._thread = threading.Thread(
            target=_train,
            args=(self._pacing, algo, env, config, options),
            name="muster-trainer",
            daemon=True,
        )
        self._thread.start()
        try:
            message = self._next()
        except BaseException:  # Ctrl-C: the run ends as soon as it is prepared
            self._pacing.begin(False)
            raise
        if isinstance(message, Ready):
            self.ready = message
        if self.error is not None:
            raise self.error
        # Only now: engines, which the thread has loaded, register what they end at exit before.
        atexit.register(self._end_at_exit)

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, well or not."""
        return self.result is not None or self.error is not None

    @property
    def env_step(self) -> int:
        """Environment steps of the run so far."""
        if self.result is not None:
            return self.result.env_steps
        if self.report is not None:
            return self.report.env_step
        return 0 if self.ready is None else self.ready.env_step

    def step(self, env_steps: int | None) -> StepResult:
        """Train one iteration, or at least so many environment steps; return what it did."""
        started = time.monotonic()
        report = self._step(env_steps)
        return StepResult.of(report, time.monotonic() - started)

    def _step(self, env_steps: int | None) -> Arrived:
        if not self._is_stepping:
            if env_steps is not None:
                self._wanted = self.env_step + env_steps
            else:
                self._wanted = None if self.report is None else self.report.next_step
            self._is_stepping = True
            if self.has_begun:
                self._go_on()
            else:
                self._begin(True)
        elif not self._stands and self._wanted is not None:
            # An interrupted step: Ctrl-C may have come between a message and its reading.
            self._go_on()
        while True:
            if self._stands and self.report is not None:
                if self._wanted is None or self.report.env_step >= self._wanted:
                    self._is_stepping = False
                    return self.report
                self._go_on()
            message = self._next()
            if isinstance(message, _Ended):
                return self._last_report(message)

    def ask(self, question: Any) -> Any:
        """Return the answer of the gate to a question."""
        self._asked += 1
        asked = Ask(self._asked, question)
        self._pacing.link.send(asked)
        while True:
            message = self._next()
            if isinstance(message, _Ended):
                self._last_report(message)
                return None
            if isinstance(message, Answered) and message.number == asked.number:
                return message.value
            if isinstance(message, Arrived) and not message.is_last:
                self._pacing.link.send(asked)  # it may have been lost with a replaced process

    def weights(self) -> Any:
        """Return the weights of the policy, as they are now."""
        found = self.ask("weights")
        if found is None:
            return None
        tree, buffers = found
        return unpack(tree, [memoryview(buffer) for buffer in buffers])

    def close(self, number: int | None = None) -> None:
        """End the run with the loop that is in progress, and wait until it is saved.

        Args:
            number: The signal that is the reason, if one is: a running evaluation is abandoned.
        """
        if self.has_ended:
            return
        self.request_close(number)
        try:
            while not isinstance(message := self._next(), _Ended):
                if number is None and isinstance(message, Arrived) and not message.is_last:
                    self._pacing.link.send(Close())
        except BaseException:  # a second Ctrl-C: whoever sends it does not want to wait
            for _ in range(2):
                self._signal(signal.SIGINT)
            self._thread.join(_ABANDON_S)
            raise

    def request_close(self, number: int | None = None) -> None:
        """Ask the run to end, without waiting."""
        if not self.has_begun:
            self._begin(False)
        elif number is None:
            self._pacing.link.send(Close())
        else:
            self._signal(number)

    def _begin(self, is_wanted: bool) -> None:
        self.has_begun = True
        self._pacing.begin(is_wanted)

    def _go_on(self) -> None:
        self._stands = False
        until = self.env_step + 1 if self._wanted is None else self._wanted
        self._pacing.link.send(GoOn(until))

    def _signal(self, number: int) -> None:
        self._pacing.stop.request(number)
        if self.ready is not None and self.ready.job.on_nodes:
            self._pacing.link.send(StopSignal(number))

    def _last_report(self, ended: _Ended) -> Arrived:
        """Return the report of the last loop. Raises the error of a run that failed."""
        self._is_stepping = False
        if ended.error is not None:
            raise ended.error
        assert ended.result is not None
        last = self.report
        if last is None or not last.is_last:  # it was told to end in the middle of a loop
            steps, updates = ended.result.env_steps, ended.result.train_iter
            last = Arrived(steps, updates, steps, is_last=True)
        return last

    def _next(self) -> object:
        """Return the next message of the thread, and note it."""
        while True:
            try:
                message = self._pacing.link.receive(_TURN_S)
                break
            except queue.Empty:
                if self._thread.is_alive():
                    continue
                if self._pacing.ended is not None:  # the message was lost by Ctrl-C
                    message = self._pacing.ended
                    break
                if not self.has_ended:
                    raise TaskError(
                        "the thread of this run has died",
                        "it left no result and no error",
                        "muster resume RUN, from its last checkpoint",
                    ) from None
        if isinstance(message, Arrived):
            self.report, self._stands = message, not message.is_last
        elif isinstance(message, _Ended):
            self.result, self.error = message.result, message.error
            self._thread.join()
            atexit.unregister(self._end_at_exit)
        return message

    def _end_at_exit(self) -> None:
        """Let a run that was never closed end and save before Python exits."""
        if self._thread.is_alive():
            self.request_close()
            self._thread.join(_EXIT_S)


def _train(
    pacing: Pacing,
    algo: str | None,
    env: str | None,
    config: str | Path | None,
    options: dict[str, Any],
) -> None:
    """Run on the thread. It knows nothing of the caller, who may drop the run at any time."""
    try:
        ended = _Ended(run_training(algo, env, config, options, pacing))
    except BaseException as error:
        ended = _Ended(None, error)
    pacing.ended = ended
    pacing.link.deliver(ended)
