"""The check of a task that is one episode of a simulated world: played here, without a sandbox or an agent."""

from typing import Any

import verifiers.v1 as vf
from opencode_env.check_tasks.report import Finding, Kind
from verifiers.v1.task import Task

from opencode_simulation.gold import are_calls, gold_calls, played

_CLOSE = 1e-6


class WorldCheck:
    """One episode's attempts, and what they show."""

    def __init__(self, task: Task[Any, Any, Any], repeats: int, column: str | None) -> None:
        self._task, self._repeats = task, repeats
        self._calls = gold_calls(task.data, column)
        self.findings: list[Finding] = []
        self.untouched: list[float] = []
        self.gold: list[float] = []

    def _note(self, kind: Kind, told: str) -> None:
        self.findings.append(Finding(kind=kind, told=told))

    async def run(self) -> None:
        """Do all of it."""
        try:
            self.untouched = [await played(self._task, []) for _ in range(self._repeats)]
            if self._calls is None:
                self._note("no-gold", "there is no gold solution to try: a list of tool calls in the row's info")
            elif not are_calls(self._calls):
                self._note("no-gold", "the gold solution of a world is a list of {tool, arguments}")
            else:
                self.gold = [await played(self._task, self._calls) for _ in range(self._repeats)]
        except (vf.RolloutError, ValueError) as error:
            self._note("broken", f"{type(error).__name__}: {str(error)[-600:]}")
            return
        if self._calls != [] and max(self.untouched) > _CLOSE:
            self._note("untouched-passes", f"an untouched world scores {max(self.untouched):g}, and not 0")
        if self.gold and max(self.gold) < 1 - _CLOSE:
            self._note("gold-fails", f"the gold solution scores {max(self.gold):g}, and not 1")
        if len(set(self.untouched)) > 1 or len(set(self.gold)) > 1:
            self._note("flaky", f"equal worlds score {self.untouched} untouched and {self.gold} with the gold solution")
