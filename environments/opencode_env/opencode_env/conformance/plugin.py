"""The pytest plugin of the suite: its options, the evidence that its tests share, and what became of a row.

A promise that is broken says to the plugin's author what was seen instead.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from verifiers.v1.trace import WireTrace

from opencode_env.cli_agent.interception.conversations import HISTORY_RECORD
from opencode_env.conformance.dialect import dialect_of
from opencode_env.conformance.evidence import AgentSubject, Evaluations, RecordedEvaluation, gather_evidence
from opencode_env.errors import CannotRun

_SUBJECT = pytest.StashKey[AgentSubject]()


@dataclass(frozen=True)
class PlayedRow:
    """Holds what became of one row."""

    evidence: RecordedEvaluation
    name: str

    @property
    def trace(self) -> WireTrace | None:
        """The agent's trace; None when the episode failed before it was made."""
        for episode in self.evidence.finished.episodes:
            if episode.task.data.id == self.name:
                return next(iter(episode.traces), None)
        return None

    @property
    def error(self) -> str:
        """Type and message of the error that ended it; empty when it ended well."""
        for episode in (one for one in self.evidence.finished.episodes if one.task.data.id == self.name):
            errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
            return f"{errors[-1].type}: {errors[-1].message}" if errors else ""
        return f"no episode of this row was saved (vf-eval ended with {self.evidence.finished.exit_code})"

    @property
    def ok(self) -> bool:
        """Whether it is a sound rollout, to be trained on."""
        return self.trace is not None and self.trace.ok and not self.error

    @property
    def stop(self) -> str | None:
        return self.trace.stop_condition if self.trace else None

    @property
    def reward(self) -> float | None:
        """Its reward; None when it is not scored."""
        given = [reward for reward in self.trace.rewards.values() if reward is not None] if self.trace else []
        return self.trace.reward if self.trace and given else None

    @property
    def metrics(self) -> dict[str, float | None]:
        return dict(self.trace.metrics) if self.trace else {}

    @property
    def checks(self) -> dict[str, Any]:
        """Return what the commands of the row answered after the agent, by name."""
        return dict(self.trace.info.get("checks", {})) if self.trace else {}

    def broken(self, promise: str) -> str:
        """The message of a test that failed: the promise, and what was seen instead."""
        failed = {name: result["output"].strip() for name, result in self.checks.items() if result["exit_code"]}
        calls = [call.error.type if call.error else "answered" for call in self.trace.calls] if self.trace else []
        log = self.evidence.finished.log_file
        return (
            f"\n{promise}\nrow {self.name}: ok={self.ok} stop={self.stop} reward={self.reward}"
            f" error={_shortened(self.error) or None}\n  model calls: {', '.join(calls) or 'none'}"
            f"\n  failed checks: {failed or 'none'}\n  metrics: {self.metrics}\n  log: {log}"
        )


Rows = Callable[[str], PlayedRow]
"""What became of a row, by its name."""


def _shortened(error: str) -> str:
    """Its beginning and its end, where a traceback says what happened."""
    return error if len(error) <= 1500 else f"{error[:500]}\n[…]\n{error[-1000:]}"


def add_options(add: Callable[..., Any]) -> None:
    """Add the options that say which agent is tested, with pytest's or argparse's own function for one option."""
    add("--harness", metavar="ID", help="harness to test (default: the one that --env pins)")
    add("--env", metavar="ID", default="opencode-env", help="CliAgentEnv to test (default: %(default)s)")
    add("--runtime", metavar="TYPE", default="confined", help="confined (default), podman, docker, prime, …")
    add("--vf-args", metavar="'ARGS'", default="", help="further arguments of vf-eval, such as a container's image")
    add(
        "--dialect",
        metavar="MODULE:NAME",
        help="how the model makes the agent run a command (default: from the tools that the agent offers)",
    )
    add(
        "--agent-seconds",
        metavar="S",
        type=float,
        default=100.0,
        help="the agent's time limit where it should end by itself, its own retries included (default: %(default)s)",
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser.getgroup("conformance", "a CLI agent and the promises of CliAgentEnv").addoption)


def pytest_configure(config: pytest.Config) -> None:
    """Read the options; a `UsageError` if the dialect cannot be had."""
    config.addinivalue_line("markers", "rows(*names): rows of the main evaluation that a promise reads")
    harness, env = config.getoption("--harness"), config.getoption("--env")
    try:
        dialect = dialect_of(harness or env, config.getoption("--dialect"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[_SUBJECT] = AgentSubject(
        harness=harness,
        env=env,
        runtime=config.getoption("--runtime"),
        arguments=shlex.split(config.getoption("--vf-args")),
        dialect=dialect,
        seconds=config.getoption("--agent-seconds"),
    )


def pytest_report_header(config: pytest.Config) -> str:
    subject = config.stash[_SUBJECT]
    harness = subject.harness or "of the environment"
    return f"conformance: harness {harness}, env {subject.env}, runtime {subject.runtime}"


@pytest.fixture(scope="session")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Evaluations:
    """The evaluations and rows for which the chosen tests ask, made with the first of them."""
    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    asked |= {"compacting"} if "compacted" in asked else set()
    rows = {row for item in request.session.items for mark in item.iter_markers("rows") for row in mark.args}
    try:
        return gather_evidence(request.config.stash[_SUBJECT], tmp_path_factory.mktemp("conformance"), asked, rows)
    except CannotRun as error:
        pytest.exit(str(error), returncode=2)


@pytest.fixture(scope="session")
def main(runs: Evaluations) -> RecordedEvaluation:
    return runs.made["main"]


@pytest.fixture(scope="session")
def dead(runs: Evaluations) -> RecordedEvaluation:
    return runs.made["dead"]


@pytest.fixture(scope="session")
def interrupted(runs: Evaluations) -> RecordedEvaluation:
    return runs.made["interrupted"]


@pytest.fixture(scope="session")
def compacted(runs: Evaluations) -> PlayedRow:
    """Give the rollout whose conversation outgrows the window; skip where the agent makes no summary of one."""
    played = PlayedRow(runs.made["compacting"], "compacts")
    lengths = [len(request.body["messages"]) for request in played.evidence.asked("compacts")]
    if all(before <= after for before, after in pairwise(lengths)):
        assert played.ok, played.broken("A full window of the model is the policy's doing.")
        pytest.skip(f"the agent makes no summary of a conversation that outgrows the window (stop {played.stop})")
    return played


@pytest.fixture(scope="session")
def sections(compacted: PlayedRow) -> PlayedRow:
    """Skip what is promised of sections where an agent's summaries are ordinary calls."""
    if not compacted.trace or "sections" not in compacted.trace.info.get(HISTORY_RECORD, {}):
        pytest.skip("the agent does not say which of its calls are summaries (`summary_agent` of its `echo_rules`)")
    return compacted


@pytest.fixture(scope="session")
def row(main: RecordedEvaluation) -> Rows:
    """Give what became of a row, by its name."""
    return lambda name: PlayedRow(main, name)


@pytest.fixture(scope="session")
def commands(main: RecordedEvaluation, runs: Evaluations) -> None:
    """Skip promises about what the agent runs where it has no way to run a shell command."""
    if main.policy.commands and not runs.runs_commands:
        pytest.skip("the agent offers its model no tool that takes a shell command (else give --dialect MODULE:NAME)")
