"""Evaluation on a node of its own: the learner asks, and goes on learning.

    learner:   ask(weights, state) -> newest only        answers() -> the state that was asked about
    evaluator: next_question() -> weights -> answer(...) -> channel, none lost

A question that the evaluator was too slow for is replaced by the next. The learner keeps the state
that belongs to an open question, so what an answer praises can be saved as it was.
"""

from dataclasses import dataclass
from typing import Any

from muster.flow import Channel, ParameterServer, Weights, register_dataclass
from muster.workers.evaluator import Evaluation


@register_dataclass
@dataclass(frozen=True, slots=True)
class Answer:
    """What came of the evaluation of one version."""

    version: int
    returns: tuple[float, ...]
    """Of its episodes; none if there was no time for one of every environment."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer, with what the learner had when it asked."""

    state: Any
    evaluation: Evaluation | None
    """None if there was no time for one episode of every environment."""


class EvaluationApart:
    """The questions and answers of one program; made on the learner and on the evaluator.

    Args:
        learner: Who asks.
    """

    def __init__(self, learner: str | int = "role.learner") -> None:
        self._questions = ParameterServer(name="to evaluate", home=learner)
        self._answers = Channel("evaluations", home=learner)
        self._open: dict[int, Any] = {}
        self._answered = 0

    # ---- on the learner

    def ask(self, weights: Any, state: Any, seconds: float) -> int:
        """Have these weights evaluated, and return the question's number.

        Args:
            weights: What the evaluator gets.
            state: Kept here, and returned with the answer.
            seconds: That the evaluation may take.
        """
        number = self._questions.push(weights, seconds=seconds)
        self._open[number] = state
        return number

    def answers(self, wait_for: int | None = None) -> list[Judged]:
        """Return what was answered since this was called last.

        Args:
            wait_for: The number of a question whose answer is worth waiting for. If the run is
                told to finish meanwhile, there is none.
        """
        found = []
        while len(self._answers) or (wait_for is not None and wait_for in self._open):
            answer = self._answers.get()
            if answer is None:
                break
            if answer.version in self._open:  # else it was answered twice: by a replaced evaluator
                evaluation = Evaluation.of(answer.returns) if answer.returns else None
                found.append(Judged(self._open[answer.version], evaluation))
                for older in [number for number in self._open if number <= answer.version]:
                    del self._open[older]
        return found

    # ---- on the evaluator

    def next_question(self) -> Weights | None:
        """Wait for weights that were not evaluated yet; None when the run finishes."""
        return self._questions.pull(newer_than=self._answered)

    def answer(self, question: Weights, evaluation: Evaluation | None) -> None:
        """Tell the learner; None that there was no time for it."""
        self._answered = question.version
        self._answers.put(Answer(question.version, evaluation.returns if evaluation else ()))
