"""What the suite's runs left behind; every promise is then read from it.

Invariant: up to three evaluations run at once, each from a home of its own, because most of their time is waiting: the
rows, an endpoint that refuses connections, and one that is interrupted in the middle of its rollouts.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout_sandbox.conformance.subject import until

from opencode_env.conformance.dialect import Dialect
from opencode_env.conformance.rows import (
    DEAD_ROWS,
    INTERRUPTED_PROCESSES,
    INTERRUPTED_ROWS,
    MAX_TOTAL_TOKENS,
    MAX_TURNS,
    VICTIM,
    Row,
    RowPolicy,
    main_rows,
)
from opencode_env.conformance.taskset import JOURNAL_VARIABLE
from opencode_env.conformance.user_home import Finished, Running, UserHome, closed_port, is_closed
from opencode_env.scripted_model import RecordedRequest, ScriptedModel

KEY_VARIABLE = "CONFORMANCE_PROVIDER_KEY"
_RUN_SECONDS = 540.0


class CannotRun(Exception):
    """`vf-eval` ended before any rollout; the message holds the end of its log."""


@dataclass(frozen=True)
class AgentSubject:
    """What the options of the suite say."""

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
        """What `vf-eval` needs to play the suite's taskset with this agent."""
        runtime = "subprocess" if self.confined else self.runtime
        harness = [] if self.harness is None else ["--env.agent.harness.id", self.harness]
        return ["--env.id", self.env, "--env.agent.runtime.type", runtime, *harness, *self.arguments]


@dataclass(frozen=True)
class Evidence:
    """One evaluation: what it saved, what its hooks saw, what reached its model, what it left."""

    finished: Finished
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
        """What the cleanup hooks of one row saw, in order."""
        return [entry for entry in self.journal if entry["row"] == name]

    def asked(self, row: str) -> list[RecordedRequest]:
        """The requests of one row that reached the model."""
        return [request for request in self.requests if f"row {row}:" in json.dumps(request.body)]


@dataclass(frozen=True)
class Runs:
    """The evaluations of a subject."""

    subject: AgentSubject
    made: Mapping[str, Evidence]
    """By name, of `EVALUATIONS`."""

    @property
    def runs_commands(self) -> bool:
        return any(self.made["main"].policy.commands.values())


def gather_evidence(subject: AgentSubject, root: Path, names: Collection[str], rows: Collection[str]) -> Runs:
    """Run the evaluations of these names (of `EVALUATIONS`), all at once, below an empty directory; of the main one
    these rows, without any the sound one.

    Raises:
        CannotRun: there is nothing to judge.
    """

    async def gather() -> Runs:
        stages = {name: _Stage(subject, root / name, rows or ["sound"]) for name in EVALUATIONS if name in names}
        made = await asyncio.gather(*(EVALUATIONS[name](stage) for name, stage in stages.items()))
        return Runs(subject, dict(zip(stages, made, strict=True)))

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

    def running(self, rows: Sequence[Row], base_url: str, *arguments: str) -> AbstractAsyncContextManager[Running]:
        path = self.home.root / "rows.jsonl"
        path.write_text("".join(json.dumps(row.data(self.subject.seconds)) + "\n" for row in rows))
        taskset = ["--env.taskset.id", "conformance-tasks", "--env.taskset.rows", str(path)]
        options = [*self.subject.vf_arguments, *taskset, "--client.api-key-var", KEY_VARIABLE, "-c", "8"]
        variables = {
            KEY_VARIABLE: self.key,
            JOURNAL_VARIABLE: str(self._journal),
            # Programs of agents are installed once per machine, not once per home.
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv"),
        }
        return self.home.running("suite", base_url, *options, *arguments, env=variables)

    def evidence(self, finished: Finished, policy: RowPolicy, requests: Sequence[RecordedRequest] = ()) -> Evidence:
        written = self._journal.read_text() if self._journal.exists() else ""
        journal = [json.loads(line) for line in written.split("\n") if line]
        return Evidence(finished, journal, requests, self.home.leftovers(), policy, self.key)


async def _main(stage: _Stage) -> Evidence:
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


async def _dead(stage: _Stage) -> Evidence:
    url = f"http://127.0.0.1:{closed_port()}/v1"
    async with stage.running(DEAD_ROWS, url, "--env.probe", "none") as run:
        return stage.evidence(await run.finish(_RUN_SECONDS), RowPolicy(DEAD_ROWS, stage.subject.dialect))


async def _interrupted(stage: _Stage) -> Evidence:
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


EVALUATIONS = {"main": _main, "dead": _dead, "interrupted": _interrupted}


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
