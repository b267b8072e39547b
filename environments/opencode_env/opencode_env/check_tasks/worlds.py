"""The check of a task that is one episode of a simulated world: played here, without a sandbox or an agent.

The gold solution is a list of tool calls, `[{"tool": "move", "arguments": {"direction": "right"}}, …]`, in the row's
`info`; an empty list says that nothing must be done.
"""

from typing import Any

import verifiers.v1 as vf
from mcp.client.client import Client

from opencode_env.check_tasks.attempt_trace import trace_for
from opencode_env.check_tasks.gold import GOLD_COLUMNS
from opencode_env.check_tasks.report import Finding, Kind
from opencode_env.simulation.alone import WorldAlone
from opencode_env.simulation.episode import EpisodeSpec
from opencode_env.simulation.ledger import LEDGER_KEY
from opencode_env.simulation.reference import find_world
from opencode_env.simulation.task import SimulationTask

_CLOSE = 1e-6


class WorldCheck:
    """One episode's attempts, and what they show."""

    def __init__(self, task: SimulationTask, repeats: int, column: str | None) -> None:
        self._task, self._repeats = task, repeats
        columns = (column,) if column else GOLD_COLUMNS
        self._calls = next((task.data.info[name] for name in columns if name in task.data.info), None)
        self.findings: list[Finding] = []
        self.untouched: list[float] = []
        self.gold: list[float] = []

    def _note(self, kind: Kind, told: str) -> None:
        self.findings.append(Finding(kind=kind, told=told))

    async def run(self) -> None:
        """Do all of it."""
        try:
            self.untouched = [await self._played([]) for _ in range(self._repeats)]
            if self._calls is None:
                self._note("no-gold", "there is no gold solution to try: a list of tool calls in the row's info")
            elif not _are_calls(self._calls):
                self._note("no-gold", "the gold solution of a world is a list of {tool, arguments}")
            else:
                self.gold = [await self._played(self._calls) for _ in range(self._repeats)]
        except (vf.RolloutError, ValueError) as error:
            self._note("broken", f"{type(error).__name__}: {str(error)[-600:]}")
            return
        if self._calls != [] and max(self.untouched) > _CLOSE:
            self._note("untouched-passes", f"an untouched world scores {max(self.untouched):g}, and not 0")
        if self.gold and max(self.gold) < 1 - _CLOSE:
            self._note("gold-fails", f"the gold solution scores {max(self.gold):g}, and not 1")
        if len(set(self.untouched)) > 1 or len(set(self.gold)) > 1:
            self._note("flaky", f"equal worlds score {self.untouched} untouched and {self.gold} with the gold solution")

    async def gold_is_right(self) -> bool | None:
        """Whether the gold solution alone gives 1; None where there is none.

        Raises:
            TaskError: it is no list of calls, or the world refused one or failed.
        """
        if self._calls is None:
            return None
        if not _are_calls(self._calls):
            raise vf.TaskError("the gold solution of a world is a list of {tool, arguments}")
        return await self._played(self._calls) > 1 - _CLOSE

    async def _played(self, calls: Any) -> float:
        """The reward after these calls.

        Raises:
            TaskError: the world refused one, or failed; or its rubric wants a sandbox.
        """
        task = self._task
        world = find_world(task.config.world)
        spec = EpisodeSpec(
            seed=task.data.seed,
            config=task.data.config,
            max_steps=task.data.max_steps or task.config.max_steps,
            call_timeout=task.config.call_timeout,
        )
        refused = ""
        async with WorldAlone(world, spec) as alone:
            async with Client(alone.server()) as client:
                tools = {tool.name for tool in (await client.list_tools()).tools}
                for call in calls:
                    known = call["tool"] in tools
                    result = await client.call_tool(call["tool"], call.get("arguments", {})) if known else None
                    if result is None or result.is_error:
                        refused = f"the world refused the gold solution's call of {call['tool']!r}"
                        break
            await alone.episode.finish()
            ledger = alone.ledger
        if refused:
            raise vf.TaskError(refused)
        if ledger.summary.error is not None:
            raise vf.TaskError(f"the world failed: {ledger.summary.error}")
        trace = trace_for(task, vf.AgentConfig())
        trace.info[LEDGER_KEY] = {
            "steps": [entry.model_dump(mode="json") for entry in ledger.steps],
            "summary": ledger.summary.model_dump(mode="json"),
        }
        await task.rubric.score(task.data, trace, None)
        return float(trace.reward)


def _are_calls(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(call, dict) and "tool" in call for call in value)
