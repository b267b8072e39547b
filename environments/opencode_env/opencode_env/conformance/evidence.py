"""The rows of the suite, and what playing them left behind; every promise is then read from it.

One row is one promise or a few: what its model says, and what happens to the sandbox around it. Up to four evaluations
run at once, each from a home of its own, because most of their time is waiting: the rows, an endpoint that refuses
connections, one that is interrupted in the middle of its rollouts, and one whose model has a small window.
"""

import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollout_sandbox.conformance.subject import until

from opencode_env.conformance.dialect import Dialect
from opencode_env.conformance.taskset import COMMAND_MARK, JOURNAL_VARIABLE
from opencode_env.conformance.user_home import FinishedEvaluation, RunningEvaluation, UserHome, closed_port, is_closed
from opencode_env.errors import CannotRun
from opencode_env.scripted_model import ChatRequest, Fault, FaultKind, RecordedRequest, Reply, ScriptedModel, Usage

RIGHT, WRONG = "the-right-answer", "a-wrong-answer"
"""What the scripted model says when it is right, and when it is wrong."""
MAX_TURNS = 6
"""The seat's limit, reached by the row `turns` only."""
MAX_TOTAL_TOKENS = 5_000_000
"""The seat's budget, reached by the row `budget` only."""
LIMIT_SECONDS = 60.0
"""Time limit of the row whose agent runs a command without end: enough to come that far on a busy machine."""
SILENT_SECONDS = 45.0
"""Time limit of the row whose model never answers: enough to ask it on a busy machine."""
SERVICE, VICTIM = "sleep 59841", "sleep 59842"
"""Processes that the setup of a row leaves running; the sandbox of the second one is killed."""


@dataclass(frozen=True)
class RowReply:
    """One reply of the model: a shell command for the agent to run, or a text that ends its work."""

    command: str = ""
    text: str = ""
    faults: tuple[Fault, ...] = ()
    usage: Usage | None = None


@dataclass(frozen=True)
class SuiteRow:
    """A task and the model's part in it; `fields` are those of the taskset's `ConformanceData`."""

    name: str
    moves: Sequence[RowReply] = (RowReply(text=RIGHT),)
    fields: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    """The agent's time limit; None takes the suite's, which a sound agent never meets."""

    @property
    def mark(self) -> str:
        """The words in the prompt by which its requests are told."""
        return f"row {self.name}:"

    @property
    def prompt(self) -> str:
        return f"{self.mark} do what the script says"

    def data(self, seconds: float) -> dict[str, Any]:
        timeout = {"agent": self.seconds or seconds, "setup": 90.0, "finalize": 90.0, "scoring": 90.0}
        return {"id": self.name, "prompt": self.prompt, "timeout": timeout, **self.fields}


def some_process(pattern: str) -> str:
    """A shell condition: some process that can be seen has a command line that begins with this pattern."""
    return f"for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null | grep -q '^{pattern}'"


def no_process(pattern: str) -> str:
    """A shell condition: no process that can be seen has a command line that begins with this pattern."""
    return f"! {some_process(pattern)}"


def faulty(kind: FaultKind, **settings: Any) -> RowReply:
    return RowReply(text=RIGHT, faults=(Fault(kind=kind, **settings),))


def finds(key: str) -> str:
    """A shell command that prints every place in the sandbox where the key can be read, and spells the key nowhere."""
    half = len(key) // 2
    places = '"$HOME" "$PWD" /tmp /var/tmp /run /home /etc'
    pattern = f"printf '%s%s' {key[:half]} {key[half:]}"
    return (
        f"{pattern} | grep -asF -l -f - /proc/[0-9]*/environ /proc/[0-9]*/cmdline; "
        f"{pattern} | grep -asrF -l -D skip -f - {places}; true"
    )


_HELLO = RowReply(command="echo hello")
_DONE = RowReply(text=RIGHT)
_LEAVE = (
    "setsid nohup sleep 59811 >/dev/null 2>&1 & "
    "setsid env -i sh -c 'sleep 59812 & sleep 59813' >/dev/null 2>&1 & "
    "(trap '' TERM INT HUP; sleep 59814) >/dev/null 2>&1 & "
    "(trap '' TERM; while sleep 0.2; do echo late >>late.txt; done) >/dev/null 2>&1 & "
    "touch left"
)
"""Leaves every kind of process that outlives its parent."""


def _neighbour(own: str, other: str) -> SuiteRow:
    marks = f'for d in "$PWD" /tmp /dev/shm; do ls -a "$d"; done | grep \'of-near-{other}\''
    look = f"{marks}; tr '\\0' ' ' </proc/[0-9]*/cmdline 2>/dev/null | grep 'sleep 5983{other}'"
    before = (
        f'for d in "$PWD" /tmp /dev/shm; do touch "$d/of-near-{own}"; done; (setsid sleep 5983{own} >/dev/null 2>&1 &)'
    )
    checks = {"files": f"! {marks}", "processes": no_process(f"sleep 5983{other}"), "own": f"test -f of-near-{own}"}
    commanded = {"agent": "test -f seen.txt && test ! -s seen.txt"}
    moves = (RowReply(command=f"({look}) >seen.txt; true"), _DONE)
    return SuiteRow(f"near-{own}", moves, {"before": before, "checks": checks, "commanded": commanded, "meets": "near"})


def main_rows(key: str) -> list[SuiteRow]:
    """The rows of the one run that shows most promises; those that wait longest come first. No command spells the
    provider's key."""
    answer = f"echo {RIGHT} >answer.txt; ({finds(key)}) >key.txt"
    right = f"grep -qx {RIGHT} answer.txt"
    sound = {
        "said": RIGHT,
        "checks": {"later": f'test -z "$({finds(key)})"'},
        "commanded": {"answer": right, "agent": "test -f key.txt && test ! -s key.txt"},
    }
    served = {"service": some_process(SERVICE)}
    left = {
        "ran": "test -e left",
        "ended": no_process("sleep 5981"),
        "still": "! test -e late.txt || { wc -c <late.txt >a; sleep 0.6; wc -c <late.txt | cmp -s - a; }",
    }
    service = f"(setsid {SERVICE} >/dev/null 2>&1 &)"
    return [
        SuiteRow("always-500", (_HELLO, faulty(FaultKind.STATUS, status=500))),
        SuiteRow("always-cut", (_HELLO, faulty(FaultKind.CUT))),
        _neighbour("1", "2"),
        _neighbour("2", "1"),
        SuiteRow("silent", (faulty(FaultKind.HANG),), seconds=SILENT_SECONDS),
        # The time is over while an agent that tries again is still trying: no time limit hides a failing endpoint.
        SuiteRow("short-500", (faulty(FaultKind.STATUS, status=500),), seconds=LIMIT_SECONDS),
        SuiteRow(
            "late",
            (RowReply(command="touch made; setsid sleep 59801 & sleep 59802"), _DONE),
            {"checks": {"ended": no_process("sleep 5980"), "made": "test -e made"}},
            seconds=LIMIT_SECONDS,
        ),
        SuiteRow("killed", (_HELLO, faulty(FaultKind.HANG)), {"before": f"(setsid {VICTIM} >/dev/null 2>&1 &)"}),
        SuiteRow("no-finish", (_HELLO, faulty(FaultKind.NO_FINISH))),
        SuiteRow("sound", (RowReply(command=answer), _DONE), sound),
        SuiteRow(
            "wrong",
            (RowReply(command=f"echo {WRONG} >answer.txt"), RowReply(text=WRONG)),
            {"said": RIGHT, "commanded": {"answer": right}},
        ),
        SuiteRow("turns", (RowReply(command="echo once more"),)),
        SuiteRow(
            "budget", (_HELLO, RowReply(command="echo dear", usage=Usage(prompt_tokens=6_000_000, completion_tokens=9)))
        ),
        SuiteRow("window", (_HELLO, faulty(FaultKind.OVERFLOW, window=4096))),
        SuiteRow("recovers", (_HELLO, faulty(FaultKind.STATUS, status=500, attempts=1)), {"said": RIGHT}),
        SuiteRow("refused", (_HELLO, faulty(FaultKind.STATUS, status=401))),
        SuiteRow("leaves", (RowReply(command=_LEAVE), _DONE), {"before": service, "checks": {**left, **served}}),
        SuiteRow("bad-setup", fields={"before": "echo no such fixture >&2; exit 3"}),
        SuiteRow("bad-hook", fields={"hook": "raises"}),
    ]


DEAD_ROWS = [SuiteRow("dead")]
"""The row of the run whose endpoint refuses connections."""

INTERRUPTED_ROWS = [
    SuiteRow("preparing", fields={"before": "sleep 59851"}),
    SuiteRow("asking", (RowReply(command="setsid sleep 59853 >/dev/null 2>&1 &"), faulty(FaultKind.HANG))),
    SuiteRow("scoring", fields={"checks": {"endless": "sleep 59852"}}),
]
"""The rows of the run that is interrupted: each is in another stage then."""

INTERRUPTED_PROCESSES = ("sleep 59851", "sleep 59852")
"""What runs in the stages of those rows."""


class RowPolicy:
    """The scripted model's part in all rows, in one agent's dialect."""

    def __init__(self, rows: Sequence[SuiteRow], dialect: Dialect) -> None:
        self._rows = rows
        self._dialect = dialect
        self.commands: dict[str, bool] = {}
        """Whether the agent could be told to run a command, by row that was asked for."""
        self.streamed: dict[str, bool] = {}
        """Whether the agent asked for a stream, by row."""

    def row_of(self, request: ChatRequest) -> SuiteRow | None:
        return next((row for row in self._rows if any(row.mark in text for text in request.texts)), None)

    def __call__(self, request: ChatRequest, /) -> Reply:
        """The reply; a row that has ended gives its last one again."""
        row = self.row_of(request)
        if row is None:
            return Reply(text="I am a scripted model; this is not one of the suite's rows.")
        able = self._dialect.command(request, "true") is not None
        self.commands[row.name] = self.commands.get(row.name, False) or able
        self.streamed[row.name] = request.body.stream
        moves = [move for move in row.moves if able or not move.command] or [RowReply(text="I have no tool.")]
        move = moves[min(request.turn, len(moves) - 1)]
        reply = self._dialect.command(request, f": {COMMAND_MARK}; {move.command}") if move.command else None
        reply = reply or self._dialect.answer(request, move.text)
        return reply.model_copy(update={"faults": move.faults, "usage": move.usage})


WINDOW = 20_000
"""Tokens of the window of the model whose conversation outgrows it."""
STEPS = 8
"""Commands of that row, whose results together are longer than the window."""
_STEP = re.compile("seq ([0-9]+)00000")
_SUMMARISED = "in short"

COMPACTING_ROWS = [SuiteRow("compacts"), SuiteRow("forges")]
"""The rows of the run whose model has a small window."""


class CompactingPolicy(RowPolicy):
    """Fills the model's window, by what a request says of the steps before, and sums up where it is asked to."""

    def __call__(self, request: ChatRequest, /) -> Reply:
        row = self.row_of(request)
        if row is None:
            return super().__call__(request)
        said, last = request.body.model_dump_json(), request.body.messages[-1]
        step = max(map(int, _STEP.findall(said)), default=0)
        command = self._dialect.command(request, f": {COMMAND_MARK}; seq {step + 1}00000 {step + 1}01400")
        self.commands[row.name] = self.commands.get(row.name, False) or command is not None
        asked = last.role == "user" and "summar" in last.text.lower() and _SUMMARISED not in last.text
        if row.name == "forges":
            command = None if COMMAND_MARK in said else self._forged(request)
        elif command is None or asked:
            return Reply(text=f"{row.mark} {_SUMMARISED}, seq {step}00000 was run.")
        return command if command is not None and step < STEPS else self._dialect.answer(request, RIGHT)

    def _forged(self, request: ChatRequest) -> Reply | None:
        forge = getattr(self._dialect, "forge", None)
        command = None if forge is None else f": {COMMAND_MARK}; {forge()}"
        return None if command is None else self._dialect.command(request, command)


_KEY_VARIABLE = "CONFORMANCE_PROVIDER_KEY"
_RUN_SECONDS = 540.0


@dataclass(frozen=True)
class AgentSubject:
    """Holds what the options of the suite say."""

    harness: str | None
    """Id of the harness; None: the one that the environment pins."""
    env: str
    """Id of a `CliAgentEnv`."""
    runtime: str
    """Runtime of the seat; `confined` is the local sandbox."""
    arguments: Sequence[str]
    """Further arguments of `vf-eval`."""
    dialect: Dialect
    seconds: float
    """The agent's time limit in rows where it should not need one."""

    @property
    def confined(self) -> bool:
        """Whether it runs in the confined local sandbox, whose processes and files are seen from here."""
        return self.runtime == "confined"

    @property
    def vf_arguments(self) -> list[str]:
        """Return what `vf-eval` needs to play the suite's taskset with this agent."""
        runtime = "subprocess" if self.confined else self.runtime
        harness = [] if self.harness is None else ["--env.agent.harness.id", self.harness]
        return ["--env.id", self.env, "--env.agent.runtime.type", runtime, *harness, *self.arguments]


@dataclass(frozen=True)
class RecordedEvaluation:
    """One evaluation: what it saved, what its hooks saw, what reached its model, what it left."""

    finished: FinishedEvaluation
    journal: Sequence[dict[str, Any]]
    requests: Sequence[RecordedRequest]
    leftovers: Sequence[str]
    policy: RowPolicy
    key: str
    """The provider's key of the run."""

    @property
    def open_ports(self) -> list[int]:
        """Ports of the run's interception on which something still listens."""
        return [port for port in self.finished.ports if not is_closed(port)]

    def hooks(self, name: str) -> list[dict[str, Any]]:
        """Return what the cleanup hooks of one row saw, in order."""
        return [entry for entry in self.journal if entry["row"] == name]

    def asked(self, row: str) -> list[RecordedRequest]:
        """The requests of one row that reached the model."""
        return [request for request in self.requests if f"row {row}:" in json.dumps(request.body)]


@dataclass(frozen=True)
class Evaluations:
    """The evaluations of a subject."""

    subject: AgentSubject
    made: Mapping[str, RecordedEvaluation]
    """By name, of `EVALUATIONS`."""

    @property
    def runs_commands(self) -> bool:
        return any(self.made["main"].policy.commands.values())


def gather_evidence(subject: AgentSubject, root: Path, names: Collection[str], rows: Collection[str]) -> Evaluations:
    """Run the evaluations of these names (of `EVALUATIONS`), all at once, below an empty directory; of the main one
    these rows, without any the sound one."""

    async def gather() -> Evaluations:
        stages = {name: _Stage(subject, root / name, rows or ["sound"]) for name in EVALUATIONS if name in names}
        made = await asyncio.gather(*(EVALUATIONS[name](stage) for name, stage in stages.items()))
        return Evaluations(subject, dict(zip(stages, made, strict=True)))

    runs = asyncio.run(gather())
    for evidence in runs.made.values():
        finished = evidence.finished
        if not finished.episodes and finished.exit_code != 128 + signal.SIGINT:
            raise CannotRun(f"vf-eval ended with {finished.exit_code} before any rollout:\n{finished.log[-3000:]}")
    return runs


class _Stage:
    """A home, a key and a journal for one evaluation."""

    def __init__(self, subject: AgentSubject, root: Path, rows: Collection[str]) -> None:
        self.subject = subject
        self.rows = rows
        self.home = UserHome(root, python_path())
        self.key = f"sk-conformance-{secrets.token_hex(16)}"
        self._journal = root / "journal.jsonl"

    def running(
        self, rows: Sequence[SuiteRow], base_url: str, *arguments: str
    ) -> AbstractAsyncContextManager[RunningEvaluation]:
        path = self.home.root / "rows.jsonl"
        path.write_text("".join(json.dumps(row.data(self.subject.seconds)) + "\n" for row in rows))
        taskset = ["--env.taskset.id", "conformance-tasks", "--env.taskset.rows", str(path)]
        options = [*self.subject.vf_arguments, *taskset, "--client.api-key-var", _KEY_VARIABLE, "-c", "8"]
        variables = {
            _KEY_VARIABLE: self.key,
            JOURNAL_VARIABLE: str(self._journal),
            # Programs of agents are installed once per machine, not once per home.
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv"),
        }
        return self.home.running("suite", base_url, *options, *arguments, env=variables)

    def evidence(
        self, finished: FinishedEvaluation, policy: RowPolicy, requests: Sequence[RecordedRequest] = ()
    ) -> RecordedEvaluation:
        written = self._journal.read_text() if self._journal.exists() else ""
        journal = [json.loads(line) for line in written.split("\n") if line]
        return RecordedEvaluation(finished, journal, requests, self.home.leftovers(), policy, self.key)


async def _main(stage: _Stage) -> RecordedEvaluation:
    rows = [row for row in main_rows(stage.key) if row.name in stage.rows]
    policy = RowPolicy(rows, stage.subject.dialect)
    limits = ["--env.agent.max-turns", str(MAX_TURNS), "--env.agent.max-total-tokens", str(MAX_TOTAL_TOKENS)]
    async with ScriptedModel(policy) as model, stage.running(rows, model.base_url, *limits) as run:
        killing = asyncio.ensure_future(_kill_sandbox(stage, policy)) if stage.subject.confined else None
        try:
            finished = await run.finish(_RUN_SECONDS)
        finally:
            if killing is not None:
                killing.cancel()
                await asyncio.gather(killing, return_exceptions=True)
        return stage.evidence(finished, policy, model.requests)


async def _dead(stage: _Stage) -> RecordedEvaluation:
    url = f"http://127.0.0.1:{closed_port()}/v1"
    async with stage.running(DEAD_ROWS, url, "--env.probe", "none") as run:
        return stage.evidence(await run.finish(_RUN_SECONDS), RowPolicy(DEAD_ROWS, stage.subject.dialect))


async def _interrupted(stage: _Stage) -> RecordedEvaluation:
    policy = RowPolicy(INTERRUPTED_ROWS, stage.subject.dialect)
    async with ScriptedModel(policy) as model, stage.running(INTERRUPTED_ROWS, model.base_url) as run:

        def everywhere() -> bool:
            commands = [command.strip() for command in stage.home.processes().values()]
            staged = not stage.subject.confined or all(process in commands for process in INTERRUPTED_PROCESSES)
            failed = run.process.poll() is not None or "rollout done: " in run.log
            return failed or (model.active == 1 and staged)

        with contextlib.suppress(TimeoutError):  # then it is interrupted where it is, and the tests say what is missing
            await until(everywhere, seconds=_RUN_SECONDS)
        if run.process.poll() is None:
            run.process.send_signal(signal.SIGINT)
        return stage.evidence(await run.finish(_RUN_SECONDS), policy, model.requests)


async def _compacting(stage: _Stage) -> RecordedEvaluation:
    forges = hasattr(stage.subject.dialect, "forge")
    rows = COMPACTING_ROWS if forges else COMPACTING_ROWS[:1]
    policy = CompactingPolicy(rows, stage.subject.dialect)
    async with ScriptedModel(policy, context_window=WINDOW) as model, stage.running(rows, model.base_url) as run:
        return stage.evidence(await run.finish(_RUN_SECONDS), policy, model.requests)


EVALUATIONS = {"main": _main, "dead": _dead, "interrupted": _interrupted, "compacting": _compacting}


async def _kill_sandbox(stage: _Stage, policy: RowPolicy) -> None:
    """Kill the sandbox of the row `killed` while its agent waits for the model."""
    await until(lambda: "killed" in policy.streamed, seconds=600)
    for pid, command in stage.home.processes().items():
        if command.strip() == VICTIM:
            os.kill(_outermost_bubblewrap(pid), signal.SIGKILL)


def python_path() -> list[Path]:
    """The suite's plugins, and where this process finds modules that are not installed: the author's own."""
    installed = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    entries = [Path(entry or os.curdir).resolve() for entry in sys.path]
    own = [entry for entry in entries if entry.is_dir() and not any(entry.is_relative_to(root) for root in installed)]
    return [Path(__file__).parent / "plugins", *own]


def _outermost_bubblewrap(pid: int) -> int:
    """The process that holds the sandbox of a process."""
    found = pid
    while pid > 1:
        stat = Path("/proc", str(pid), "stat").read_text()
        found = pid if stat.partition("(")[2].rpartition(")")[0] == "bwrap" else found
        pid = int(stat.rpartition(")")[2].split()[1])
    return found
