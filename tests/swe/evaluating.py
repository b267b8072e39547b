"""`vf-eval opencode-swe` on rows whose agents each run one script, told by the row's question."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from opencode_env.scripted_model import Reply, ScriptedModel
from opencode_env.scripted_model.policy import ChatRequest

from tests.support.replies import call
from tests.support.rows import write_rows
from tests.support.sizes import size
from tests.support.user_home import FinishedEvaluation, UserHome
from tests.swe.repositories import Repository

_SECONDS = size(3600.0, 4 * 3600.0)
"""Of an evaluation; `make test-whole` plays hundreds of rollouts in one."""
Form = Callable[[Repository], dict[str, Any]]
"""Makes a row of a repository."""


@dataclass(frozen=True)
class Case:
    """What the agent does with which row, and what it earns."""

    name: str
    row: Mapping[str, Any]
    script: str
    reward: float

    @classmethod
    def of(cls, form: Form, repository: Repository, name: str, script: str, reward: float, **columns: Any) -> Self:
        """A row of this form, by its own name."""
        row = {**form(repository), "instance_id": name, "problem_statement": f"This is the task <{name}>.", **columns}
        return cls(name, row, script, reward)


class Policy:
    """Runs the script of the case that the question names, with OpenCode's `bash`."""

    def __init__(self, played: Sequence[Case]) -> None:
        self._scripts = {str(case.row["problem_statement"]): case.script for case in played}

    def __call__(self, request: ChatRequest, /) -> Reply:
        (script,) = [script for question, script in self._scripts.items() if question in request.prompt]
        return Reply(text="done") if request.turn else call("bash", command=script, description="work")


def run(home: UserHome, name: str, played: Sequence[Case], *options: str, **env: str) -> FinishedEvaluation:
    """One evaluation of these cases."""
    rows = write_rows(home.root / f"{name}.jsonl", [case.row for case in played])

    async def evaluated() -> FinishedEvaluation:
        async with ScriptedModel(Policy(played)) as model:
            arguments = ["opencode-swe", "--env.taskset.dataset", str(rows), "-c", "2", *options]
            async with home.running(name, model.base_url, *arguments, env=env) as running:
                return await running.finish(_SECONDS)

    return asyncio.run(evaluated())


def assert_scored(finished: FinishedEvaluation, played: Sequence[Case], times: int = 1) -> None:
    """Every case earned what it should, each of `times`, without an error."""
    assert finished.exit_code == 0, finished.log
    assert all(episode.ok for episode in finished.episodes), finished.log
    rewards: dict[str, list[float]] = {}
    for episode in finished.episodes:
        rewards.setdefault(str(episode.task.data.id), []).append(episode.traces[0].reward)
    assert rewards == {case.name: [case.reward] * times for case in played}, finished.log
