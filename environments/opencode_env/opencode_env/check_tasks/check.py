"""The check of one task whose sandbox is set up and scored by commands, files or answers.

Each attempt has a sandbox of its own, as a rollout has. A failure of the infrastructure is an error of the check and no
finding.
"""

import base64
import gzip
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import verifiers.v1 as vf
from opencode_rubrics import AnyTrace, JudgeError, workdir_of
from opencode_rubrics.verify_commands import commands_without_program
from pydantic import BaseModel, ValidationError
from rollout_sandbox.confined import Bind
from rollout_sandbox.errors import ScoringTimeout
from rollout_sandbox.toolbox.command import CommandResult
from rollout_sandbox.toolbox.scoring import attach
from verifiers.v1.agent import Agent
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.rollout import resolve_agent_runtime
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task
from verifiers.v1.utils.decorators import invoke

from opencode_env.check_tasks.leaks import (
    ReadableTexts,
    Secret,
    change_of,
    found_in,
    holds,
    readable_in,
    says_answer,
    secret_of,
    texts_of,
    work_in,
)
from opencode_env.cli_agent.env import CliAgentEnv, CliAgentEnvConfig
from opencode_env.cli_agent.process_fence import ProcessFence, agents_view
from opencode_env.cli_agent.rollout import Rollout
from opencode_env.cli_agent.seats import DEFAULT_ROLLOUT_SECONDS
from opencode_env.errors import GoldError
from opencode_env.taskset import OpenCodeTask
from opencode_env.taskset.gold import SOLUTION, GoldSolution, apply_gold, gold_of, near_misses, trace_for

Kind = Literal[
    "untouched-passes",
    "gold-fails",
    "near-miss-passes",
    "flaky",
    "order-dependent",
    "leak",
    "limits",
    "no-gold",
    "not-looked-at",
    "broken",
]
"""`broken`: its setup or scoring is an error. `not-looked-at`: something of the sandbox could not be searched."""


class TaskFinding(BaseModel, frozen=True):
    """One thing that is wrong with a task."""

    kind: Kind
    told: str


class TaskReport(BaseModel, frozen=True):
    """One task."""

    key: str
    hash: str
    """Of its content: a changed task is checked again."""
    options: str
    """Of the check: other options check again."""
    findings: list[TaskFinding] = []
    error: str | None = None
    """What of the infrastructure failed, so that nothing is known; tried again when the check is resumed."""
    untouched: list[float] = []
    gold: list[float] = []
    seconds: float = 0.0


class Check:
    """The check of one task; a task that is not checked in a sandbox makes its own (`own_check(repeats, gold)`)."""

    def __init__(self) -> None:
        self.findings: list[TaskFinding] = []
        self.untouched: list[float] = []
        self.gold: list[float] = []

    def note(self, kind: Kind, told: str) -> None:
        finding = TaskFinding(kind=kind, told=told)
        if finding not in self.findings:
            self.findings.append(finding)

    async def run(self) -> None:
        raise NotImplementedError


class SavedReports:
    """The reports in a JSONL file; those of the same task, content and options are not made again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: dict[tuple[str, str, str], TaskReport] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            with path.open(encoding="utf-8", errors="replace") as file:
                for line in file:
                    try:
                        report = TaskReport.model_validate_json(line)
                    except ValidationError:
                        continue  # the line that was written when it was cut off
                    if report.error is None:
                        self._done[report.key, report.hash, report.options] = report
            if path.read_bytes()[-1:] not in (b"", b"\n"):
                with path.open("a", encoding="utf-8") as file:
                    file.write("\n")

    def done(self, key: str, content: str, options: str) -> TaskReport | None:
        return self._done.get((key, content, options))

    def add(self, report: TaskReport) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(report.model_dump_json() + "\n")


def table(reports: Iterable[TaskReport]) -> str:
    """Return what was found, a line for each finding, and a line for all."""
    lines, kinds, tasks, failed = [], Counter[str](), 0, 0
    for report in reports:
        tasks += 1
        failed += bool(report.findings)
        told: list[tuple[str, str]] = [(finding.kind, finding.told) for finding in report.findings]
        told += [("error", report.error)] if report.error else []
        kinds.update(kind for kind, _ in told)
        lines += [(report.key, kind, " ".join(str(words).split())[:300]) for kind, words in told]
    widths = [max((len(line[column]) for line in lines), default=0) for column in (0, 1)]
    shown = [f"{key[:60]:{min(widths[0], 60)}}  {kind:{widths[1]}}  {told}" for key, kind, told in lines]
    counted = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    shown.append(f"{tasks} tasks, {failed} with findings" + (f": {counted}" if counted else ""))
    return "\n".join(shown)


@dataclass(frozen=True)
class TaskSandbox:
    """One task's sandbox behind its setup."""

    task: Task[Any, Any, Any]
    runtime: Runtime
    """As scoring sees it."""
    agents: Runtime
    """As the agent's programs see it."""
    trace: AnyTrace
    rollout: Rollout
    fence: ProcessFence
    agent_seconds: float
    scoring_seconds: float | None
    workdir: str

    async def score(self, task: Task[Any, Any, Any] | None = None) -> AnyTrace:
        """End what runs for the agent, and score what is there now, on a trace of its own; a `RolloutError` where it
        cannot be scored, a `ScoringTimeout` where that took longer than scoring may."""
        await self.fence.end()
        assert self.trace.agent is not None
        trace = trace_for(task or self.task, self.trace.agent.config)
        trace.root_reply = self.trace.root_reply
        hooks: dict[str | type, Any] = {"trace": trace, "runtime": self.runtime, "deployment": None}
        await invoke(self.task.finalize, hooks)
        attach(self.rollout, trace)
        async with self.rollout.time(self.scoring_seconds):
            await invoke((task or self.task).score, hooks)
        return trace


class CheckEnv(CliAgentEnv[CliAgentEnvConfig], vf.Env[CliAgentEnvConfig]):
    """`CliAgentEnv` as far as it is needed where no agent is run."""

    def __init__(self, config: CliAgentEnvConfig) -> None:
        super().__init__(config)
        self._solutions: WeakKeyDictionary[Agent, Path] = WeakKeyDictionary()

    async def local_binds(self, agent: Agent) -> list[Bind]:
        """No agent's program is shown, but the solution that is to be applied."""
        solution = self._solutions.get(agent)
        return [] if solution is None else [Bind(solution, SOLUTION)]

    @asynccontextmanager
    async def box(self, task: Task[Any, Any, Any], solution: Path | None = None) -> AsyncIterator[TaskSandbox]:
        """A sandbox of the task, with its setup behind it; the confined one shows the directory of a `solution`."""
        agent = self._episode_agents(ModelContext(model="none", client=EvalClientConfig()), [], None, None).agent
        if solution is not None:
            self._solutions[agent] = solution
        trace = trace_for(task, agent.config)
        seconds = agent.timeout.rollout or task.data.timeout.agent or DEFAULT_ROLLOUT_SECONDS
        scoring = agent.timeout.scoring if agent.timeout.scoring is not None else task.data.timeout.scoring
        rollout = Rollout()
        rollout.begin(trace)
        async with (
            self._prime_queue.place(agent.runtime_config) as rollout.start,
            self._sandbox(task, agent, rollout) as runtime,
        ):
            await invoke(task.setup, {"trace": trace, "runtime": runtime, "deployment": None})
            fence = ProcessFence(runtime)
            await fence.mark()
            seen = agents_view(await resolve_agent_runtime(runtime, task.data.agent_user))
            yield TaskSandbox(task, runtime, seen, trace, rollout, fence, seconds, scoring, workdir_of(trace))


LEAST_AGENT_SECONDS = 10.0
"""An agent needs one to three seconds to its first model call, and has done nothing then."""


def misfits(
    *, agent: float | None, seat: float | None, scoring: float | None, longest: float, setup: float | None,
    longest_setup: float, episode: float | None,
) -> Iterator[str]:  # fmt: skip
    """Yield what does not fit, before anything has run; all in seconds, without a limit where None. The `seat` goes
    before what the task gives the `agent`; the task's own commands may take the `longest` to score it."""
    if agent is not None and seat is not None and seat < agent:
        yield f"the task gives the agent {agent:g} s, and --env.agent.timeout.rollout {seat:g} s"
    agent = agent if seat is None else seat
    if agent is not None and agent < LEAST_AGENT_SECONDS:
        yield f"the agent has {agent:g} s, which is over before it has done anything"
    if scoring is not None and longest > scoring:
        yield f"scoring has {scoring:g} s, and the task's commands may take {longest:g} s"
    if setup is not None and longest_setup > setup:
        yield f"setup has {setup:g} s, and the task's commands may take {longest_setup:g} s"
    parts = (agent or 0) + (scoring or longest)
    if episode is not None and episode < parts:
        yield f"an episode has {episode:g} s, and agent and scoring may take {parts:g} s"


def tight(seconds: float, limit: float | None, what: str) -> Iterator[str]:
    if limit is not None and seconds > 0.8 * limit:
        yield f"{what} took {seconds:.1f} s of its {limit:g} s with the gold solution"


_CLOSE = 1e-6
_LEAST_HIDDEN = 60
"""Characters of a command of one line: a shorter one runs tests and holds none."""
_INFRASTRUCTURE = (vf.SandboxError, vf.ProviderError, vf.TunnelError, vf.InterceptionError, JudgeError)


class TaskCheck(Check):
    """One task's attempts, and what they show."""

    def __init__(
        self, env: CheckEnv, task: OpenCodeTask, repeats: int, column: str | None, folder: Path | None
    ) -> None:
        super().__init__()
        self._env, self._task, self._repeats = env, task, repeats
        rubric = task.rubric_config
        self._answer_path: str | None = getattr(rubric, "answer_path", None)
        self._column, self._folder, self._type = column, folder, rubric.type
        self._lacking: list[str] = []

    async def run(self) -> None:
        """Do all of it; a `RolloutError` where the infrastructure failed."""
        for told in self._misfits():
            self.note("limits", told)
        try:
            gold = gold_of(self._task.data, self._type, self._answer_path, self._column, self._folder)
        except GoldError as error:
            self.note("no-gold", str(error))
            return
        try:
            readable = await self._untouched()
            changes = await self._golden(gold) if gold is not None else []
            if gold is None:
                self.note("no-gold", "there is no gold solution to try: name its column with --gold")
                for told in self._lacking:
                    self.note("broken", told)
            elif not self.findings:
                await self._missed(gold)
            self._search(readable, gold, changes)
        except _INFRASTRUCTURE:
            raise
        except ScoringTimeout as error:
            self.note("limits", str(error))
        except vf.RolloutError as error:
            self.note("broken", f"{type(error).__name__}: {str(error)[-600:]}")

    def _misfits(self) -> Iterator[str]:
        data, seat, config = self._task.data, self._env.config.agent.timeout, self._task.config
        return misfits(
            agent=data.timeout.agent,
            seat=seat.rollout,
            scoring=seat.scoring if seat.scoring is not None else data.timeout.scoring,
            longest=self._task.rubric.longest(data),
            setup=seat.setup if seat.setup is not None else data.timeout.setup,
            longest_setup=len(data.setup) * (data.setup_timeout or config.setup_timeout),
            episode=self._env.config.timeout.episode,
        )

    async def _untouched(self) -> ReadableTexts:
        readable = ReadableTexts()
        firsts, agains = [], []
        for number in range(self._repeats):
            async with self._env.box(self._task) as box:
                if number == 0:
                    readable = await readable_in(box.agents)
                scored = await box.score()
                self._lacking = commands_without_program(scored)
                firsts.append(scored.reward)
                agains.append((await box.score(self._reordered())).reward)
        self.untouched = [*firsts, *agains]
        if max(firsts) > _CLOSE:
            self.note("untouched-passes", f"untouched sandboxes score {_listed(firsts)}, and not 0")
        self._steady(firsts, agains, "untouched")
        return readable

    async def _golden(self, gold: GoldSolution) -> list[Secret]:
        firsts, agains, changes = [], [], []
        for number in range(self._repeats):
            async with self._env.box(self._task, gold.directory) as box:
                before = await work_in(box.agents, box.workdir) if number == 0 else {}
                try:
                    await self._apply(gold, box)
                except GoldError as error:
                    self.note("gold-fails", str(error))
                    return []
                if number == 0:
                    changes = list(_changes(before, await work_in(box.agents, box.workdir)))
                scored = await box.score()
                self._note_time(scored)
                firsts.append(scored.reward)
                agains.append((await box.score(self._reordered())).reward)
        self.gold = [*firsts, *agains]
        if max(firsts) < 1 - _CLOSE:
            failed = [result for record in scored.info.get("verify", []) if not (result := CommandResult(**record)).ok]
            why = "".join(f"; {result.command[:100]!r}: {result.ending()}" for result in failed[:1])
            self.note("gold-fails", f"the gold solution scores {_listed(firsts)}, and not 1{why}")
        self._steady(firsts, agains, "with the gold solution")
        return changes

    def _note_time(self, scored: AnyTrace) -> None:
        data = self._task.data
        limit = data.verify_timeout or getattr(self._task.rubric_config, "command_timeout", None)
        runs = [(record["duration"], limit, "a verify command") for record in scored.info.get("verify", [])]
        if data.tests is not None and "duration" in (record := scored.info.get("tests", {})):
            runs.append((record["duration"], data.tests.timeout, "the tests"))
        for seconds, most, what in runs:
            for told in tight(seconds, most, what):
                self.note("limits", told)

    def _steady(self, firsts: list[float], agains: list[float], what: str) -> None:
        if len(set(firsts)) > 1 or len(set(agains)) > 1:
            self.note("flaky", f"{what}, equal sandboxes score {_listed(firsts)}, and once more {_listed(agains)}")
        elif firsts[0] != agains[0]:
            order = "in another order" if len(self._task.data.verify) > 1 else "a second time"
            self.note("order-dependent", f"{what}, a sandbox scores {firsts[0]:g}, and scored {order} {agains[0]:g}")

    async def _missed(self, gold: GoldSolution) -> None:
        for name, miss in near_misses(gold):
            async with self._env.box(self._task) as box:
                try:
                    await self._apply(miss, box)
                except GoldError:
                    continue  # what cannot be applied is not a solution
                reward = (await box.score()).reward
            if reward > (_CLOSE if miss.answer is not None else 1 - _CLOSE):
                self.note("near-miss-passes", f"{name} scores {reward:g}")

    async def _apply(self, gold: GoldSolution, box: TaskSandbox) -> None:
        await apply_gold(gold, box.agents, box.trace, box.workdir, self._answer_path, box.agent_seconds)

    def _reordered(self) -> OpenCodeTask:
        return self._task.with_data(verify=list(reversed(self._task.data.verify)))

    def _search(self, readable: ReadableTexts, gold: GoldSolution | None, changes: list[Secret]) -> None:
        prompt = self._task.data.prompt_text
        golden = [secret_of(name, text) for name, text in (gold.texts if gold else {}).items()]
        secrets = [*changes, *self._hidden(), *golden]
        answer = self._task.data.answer
        for told in found_in(readable.texts, secrets, answer, prompt):
            self.note("leak", told)
        for secret in secrets:
            if holds(prompt, secret):
                self.note("leak", f"{secret.name} is in the prompt")
        if answer is not None and says_answer(prompt, answer):
            self.note("leak", "the answer is in the prompt")
        for told in readable.unread:
            self.note("not-looked-at", told)

    def _hidden(self) -> Iterator[Secret]:
        for number, command in enumerate(self._task.data.verify, 1):
            if len(command) >= _LEAST_HIDDEN or len(command.splitlines()) > 2:
                yield secret_of(f"verify command {number}", command)
        if (code := self._task.data.code_tests) is not None:
            spoken = "\n".join(f"{test.input}\n{test.output}" for test in code.tests)
            yield secret_of("what its tests expect", spoken)
        if (problem := self._task.data.swe) is not None and problem.test_patch:
            yield secret_of("the patch of tests", problem.test_patch)
        tests = self._task.data.tests
        if tests is not None and tests.archive is not None:
            for name, text in texts_of(gzip.decompress(base64.b64decode(tests.archive))).items():
                yield secret_of(f"the hidden test {name.lstrip('/')}", text, together=True)


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Secret]:
    gone = {text for name, text in before.items() if after.get(name) != text}
    for name, text in after.items():
        if before.get(name) != text and text not in gone:
            yield change_of(f"the gold solution's {name}", before.get(name), text)


def _listed(rewards: list[float]) -> str:
    return ", ".join(f"{reward:g}" for reward in rewards)
