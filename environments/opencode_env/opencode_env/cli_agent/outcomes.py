"""Every way in which a rollout can end, in one table; what happens then follows from its row.

`classification` holds the conditions; retry rules, flags among the metrics, the types of a failing endpoint and the
documents' table are made from the rows, by the functions at the end. Invariant: what the policy did is a stop, is
scored and is not tried again; what the infrastructure did is an error, is not scored and is tried again, unless an
agent can bring it about at will: else the best of several attempts would count.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from verifiers.v1.configs.retries import RetryConfig, RetryRule
from verifiers.v1.errors import HarnessError

AgentErrors = Literal["score", "error"]
"""What becomes of a run that the agent itself has broken: scored as it is, or an `AgentError`."""


class AgentError(HarnessError):
    """The agent's program broke after the agent's own programs could have broken it, and that is not to be scored
    (`--env.agent-errors error`); `--env.retries` leaves it alone unless a rule says otherwise."""


class ConfigurationError(HarnessError):
    """A harness cannot run as it is configured, as its first model call shows or as was known before it started."""


NO_ANSWER = "before the model's first answer"
"""With what the message of an error begins that ended a rollout in which the policy has done nothing yet."""


@dataclass(frozen=True)
class Row:
    """One outcome; a text that holds `|` would break the documents' table."""

    when: str
    """What happened."""
    advice: str
    """What to do."""
    stop: str = ""
    """The trace's stop condition, by which it is recognised too; that of `AGENT_TIMEOUT` is written by verifiers."""
    errors: tuple[str, ...] = ()
    """Types of the error on the trace, or on the episode; none is a rollout that is scored."""
    again: bool = True
    """Whether `--env.retries.max-retries` (0 by default) holds for an error that no rule of `--env.retries` names."""
    metric: str = ""
    """The metric that is 1 then."""
    begins: str = ""
    """With what the error's message begins, where another row has errors of the same type."""
    endpoint: bool = False
    """Whether a model call that failed with such an error tells of the endpoint, or of the path to it."""
    also: str = ""
    """What else there is to see."""

    @property
    def scored(self) -> bool:
        """Whether the rollout gets a score."""
        return not self.errors


class Outcome(Enum):
    """How a rollout ended."""

    COMPLETED = Row(
        "empty, truncated or reasoning-only answer; malformed or unknown tool calls; giving up", "it is data"
    )
    AGENT_TIMEOUT = Row(
        "the agent's time limit, also while a first answer was coming or was awaited unstreamed",
        "raise it if it is not meant",
        stop="agent_timeout",
        metric="agent_timeout",
    )
    LIMIT = Row(
        "`max_turns`, a token budget, the bytes of the traces (`--env.gateway.max-trace`), a stop of the task's",
        "raise the limit if it is not meant",
        also="stop `max_turns`, `max_*_tokens`, `max_trace`, …",
    )
    CONTEXT_FULL = Row(
        "the conversation outgrew the model's window",
        "a larger window, or compaction",
        stop="max_total_tokens",
        metric="context_overflow",
    )
    CONTENT_FILTER = Row("the endpoint filtered the answer", "it is data", stop="content_filter")
    REQUEST_REFUSED = Row(
        "the run ended on a request over the bounds of `--env.gateway`",
        'raise the option that `trace.info["gateway"]` names, if it is not meant',
        stop="request_refused",
    )
    AGENT_BROKE = Row(
        "after its first tool call the agent broke, was killed, loops, or lost its log or state, or the endpoint "
        "refuses what is in a call (400, 404, 413, 422)",
        "its own programs can do that; `own_error` says what; `--env.agent-errors error` makes an `AgentError` of it, "
        "which is not scored and not tried again",
        stop="agent_error",
        metric="agent_error_own",
        also="on the files as they are, `agent_error` = 1",
    )
    AGENT_ERROR = Row(
        "the same with `--env.agent-errors error`",
        "the error names the cause",
        errors=("AgentError",),
        again=False,
        metric="agent_error_own",
    )
    OUTLIVED = Row(
        "the agent's processes outran their end, and everything in the sandbox was ended with them",
        "it is data",
        metric="agent_survived",
        also="reward 0",
    )
    SCORING_OVERRUN = Row(
        "programs that may be the agent's used the time of scoring",
        "a scoring limit below the sum of its commands' is warned about",
        also='reward 0, `trace.info["agent"]["scoring_overrun"]`',
    )
    NO_ANSWER = Row(
        "before the model's first answer in this rollout the prompt does not fit into the window or a budget, the "
        "endpoint refuses the request (400, 404, 413, 422), or a stop of the task's ends the run",
        "the message quotes the endpoint and names the option: `--sampling.max-tokens`, "
        "`--env.agent.harness.context-window`, a larger window or budget",
        errors=("ProviderError", "HarnessError"),
        again=False,
        begins=NO_ANSWER,
        also=f"the message begins with `{NO_ANSWER}`",
    )
    UNREADABLE = Row(
        "scoring or finalizing could not read what the agent made, and could with a neutral answer",
        "it is data, unless a warning shows a fault of the scorer's own",
        metric="answer_unreadable",
        also='its rewards 0, `trace.info["unreadable"]`',
    )
    ENDPOINT_FAILED = Row(
        "the model endpoint fails after the agent's retries (408, 429, 5xx, refused, cut or broken streams, answers "
        "that break off or lack log-probabilities), refuses the key (401, 402, 403), is silent for longer than the "
        "agent waits, or until its time limit where a first answer was to be streamed; before the first tool call also "
        "if it refuses what is in a call",
        "fix the endpoint or the engine",
        errors=("ProviderError", "InterceptionError"),
        endpoint=True,
    )
    AGENT_FAILED = Row(
        "the agent did not start, made no model call, broke before its first tool call, or was killed in the confined "
        "sandbox while the kernel ended processes of it, below its limit, for want of memory",
        "read it: it ends with the agent's log; `--env.agent.harness.log-dir` keeps all",
        errors=("HarnessError",),
    )
    NOT_STARTED = Row(
        "the agent sat before its first model call, and a second start of it did, or its time limit ended the first "
        "start",
        "`--env.agent.harness.startup-time` on a slow machine; the log",
        errors=("HarnessError",),
    )
    PICTURES = Row(
        "a task or its user shows a picture, and the renderer reads text only, or `images` is not set",
        "a renderer that takes images; `--env.agent.harness.images true`",
        errors=("HarnessError",),
    )
    RENDERER = Row(
        "the training client's renderer cannot continue what was sampled, or cannot be built",
        "what the message names",
        errors=("EnvError",),
        also="on the episode, no sandbox started",
    )
    SANDBOX_GONE = Row(
        "before the agent's first tool call the sandbox is gone, or failed, or processes could not be ended",
        "`--env.retries`",
        errors=("SandboxError",),
    )
    SANDBOX_ENDED = Row(
        "the same after a tool call, wherever it is noticed; or a Prime sandbox ended and does not say why",
        "programs of the agent's can do that; more memory, or an agent that is not root; a rule of `--env.retries`",
        errors=("SandboxEndedError",),
        again=False,
    )
    SANDBOX_FULL = Row(
        "a Prime sandbox ran out of memory or disk",
        "a larger one; the agent can fill it",
        errors=("SandboxMemoryError", "SandboxDiskError"),
        again=False,
    )
    SANDBOX_ACCESS = Row(
        "Prime does not take the key, or the account may not do that",
        "the key; the account",
        errors=("SandboxAccessError",),
        again=False,
    )
    SANDBOX_GATEWAY = Row(
        "Prime did not answer soundly; what can be repeated was tried three times",
        "`--env.retries` with a rule for it (`configs/eval/prime.toml`)",
        errors=("SandboxGatewayError",),
    )
    TUNNEL_LOST = Row(
        "the tunnel or proxy before the interception went, or an agent clogged it (it is shared)",
        "`--env.retries` tries again and waits up to two minutes for another; bound requests per sandbox at the proxy "
        "when it persists",
        errors=("TunnelError",),
        also="within seconds",
    )
    SANDBOX_FILE = Row(
        "a hook read a file that is missing, a link or too large",
        "catch it and look at `.state`; the agent may have done that",
        errors=("SandboxFileError",),
        again=False,
    )
    STAGE_TIMEOUT = Row(
        "a `setup` command or hook of the task failed; setup, finalize or scoring deadline",
        "fix the row; `--env.agent.timeout.*`",
        errors=("TaskError",),
    )
    NO_VERDICT = Row(
        "scoring fails on a neutral answer as well, in an untouched sandbox where one is needed, or that could not be "
        "tried: the row, its tests, a rubric's code, or the judge is at fault",
        "what the message names; in the confined sandbox tests cannot fetch tools: use an image",
        errors=("ScoringError", "JudgeError"),
        again=False,
    )
    WRONG_PLACE = Row(
        "the work directory is not an absolute path, or is part of the system; a row asks for an image on the local "
        "sandbox, or has a `user_simulation` that cannot be played",
        "name another `workdir`; `--env.agent.runtime.type docker`, `podman`, …; mend the row",
        errors=("TaskError",),
    )
    WORLD_FAILED = Row(
        "a world could not be reset, or its server died in it",
        "mend the world or the row's `config`; the message says its last words",
        errors=("WorldError",),
        also="the agent was not started",
    )
    WORLD_BROKE = Row(
        "a world's tool raised, hung (`call_timeout`) or gave a wrong type; its server died",
        "mend it; the agent may have done that",
        errors=("BrokenWorldError",),
        again=False,
    )
    WORLD_DIFFERS = Row(
        "a world differs from its `PRODUCTION`",
        "the text names tool and parameter",
        errors=("ToolMismatchError", "SignatureMismatchError"),
        also="before anything runs",
    )
    BACKEND_FAILED = Row(
        "a tool backend does not start",
        "mend it, its last words are in the message; `--env.backends.start-timeout`",
        errors=("ToolsetError",),
    )
    BACKEND_BROKE = Row(
        "a tool backend died or did not answer a call",
        "the agent may have done that; `--env.backends.call-timeout`",
        errors=("BrokenBackendError",),
        again=False,
    )
    USER_FAILED = Row("the model of a simulated user failed", "the endpoint", errors=("EnvError",))
    USER_BROKE = Row(
        "the same with 400, 413 or 422, or it said nothing",
        "the agent can make that",
        errors=("BrokenUserError",),
        again=False,
    )

    @property
    def row(self) -> Row:
        return self.value


def retries_of_outcomes(retries: RetryConfig) -> RetryConfig:
    """The same retries, but none of the outcomes that are not tried again, where no rule of the user's matches that."""
    rows = [outcome.row for outcome in Outcome if not outcome.row.again]
    rules = [RetryRule(type=name, message=_begins(row), max_retries=0) for row in rows for name in row.errors]
    added = [rule for rule in rules if rule not in retries.rules]
    return retries.model_copy(update={"rules": [*retries.rules, *added]})


def _begins(row: Row) -> str | None:
    return f"^{re.escape(row.begins)}" if row.begins else None


def flags_of_outcomes(ended: Collection[Outcome]) -> dict[str, float]:
    """The metrics of all rows: 1 where one of the outcomes that a rollout has `ended` with names it, else 0."""
    met = {outcome.row.metric for outcome in ended}
    return {name: float(name in met) for outcome in Outcome if (name := outcome.row.metric)}


def endpoint_errors() -> frozenset[str]:
    """Types of the failures that the endpoint, or the path to it, has caused."""
    return frozenset(name for outcome in Outcome if outcome.row.endpoint for name in outcome.row.errors)


def documented() -> str:
    """The table of the documents, in Markdown."""
    lines = ["| what happened | trace | what to do |", "| --- | --- | --- |"]
    for outcome in Outcome:
        row = outcome.row
        seen = [", ".join(f"`{name}`" for name in row.errors) or "ok, scored"]
        seen += [f"stop `{row.stop}`"] if row.stop else []
        seen += [f"`{row.metric}` = 1"] if row.metric else []
        seen += [row.also] if row.also else []
        advice = row.advice if row.again else f"{row.advice}: not tried again by default"
        lines.append(f"| {row.when} | {'; '.join(seen)} | {advice} |")
    return "\n".join(lines)
