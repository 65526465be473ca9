"""Evaluation on a separate node: the learner asks, and continues to learn.

    learner:   ask(weights, state) -> newest only        answers() -> the state that was asked about
    evaluator: next_question() -> weights -> answer(...) -> channel, none lost

If the evaluator is too slow for a question, the next question replaces it. The learner keeps the
state of every open question, so it can save the state that an answer belongs to.
"""

from dataclasses import dataclass
from typing import Any

from muster.flow import Channel, ParameterServer, Weights, register_dataclass
from muster.workers.evaluator import Evaluation


@register_dataclass
@dataclass(frozen=True, slots=True)
class EvaluationAnswer:
    """The result of evaluating one version."""

    version: int
    returns: tuple[float, ...]
    """Returns of the episodes; empty if time ran out before every environment ended one."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer, with the learner's state when it asked."""

    state: Any
    evaluation: Evaluation | None
    """None if time ran out before every environment ended an episode."""


class EvaluationApart:
    """The questions and answers of one program; created on the learner and on the evaluator.

    Args:
        learner: The node that asks.
    """

    def __init__(self, learner: str | int = "role.learner") -> None:
        self._questions = ParameterServer(name="to evaluate", home=learner)
        self._answers = Channel("evaluations", home=learner)
        self._open: dict[int, Any] = {}
        self._answered = 0

    # ---- on the learner

    def ask(self, weights: Any, state: Any, seconds: float) -> int:
        """Request an evaluation of these weights, and return the question's number.

        Args:
            weights: Sent to the evaluator.
            state: Kept here, and returned with the answer.
            seconds: Time limit of the evaluation.
        """
        number = self._questions.push(weights, seconds=seconds)
        self._open[number] = state
        return number

    def answers(self, wait_for: int | None = None) -> list[Judged]:
        """Return the answers that arrived since the last call.

        Args:
            wait_for: The number of a question to wait for. The wait ends without an answer if the
                run is told to finish.
        """
        found = []
        while len(self._answers) or (wait_for is not None and wait_for in self._open):
            answer = self._answers.get()
            if answer is None:
                break
            if answer.version in self._open:  # else a replaced evaluator answered twice
                evaluation = Evaluation.of(answer.returns) if answer.returns else None
                found.append(Judged(self._open[answer.version], evaluation))
                for older in [number for number in self._open if number <= answer.version]:
                    del self._open[older]
        return found

    # ---- on the evaluator

    def next_question(self) -> Weights | None:
        """Wait for weights that have not been evaluated; return None when the run finishes."""
        return self._questions.pull(newer_than=self._answered)

    def answer(self, question: Weights, evaluation: Evaluation | None) -> None:
        """Send the result to the learner; None if there was no time for it."""
        self._answered = question.version
        self._answers.put(
            EvaluationAnswer(question.version, evaluation.returns if evaluation else ())
        )
