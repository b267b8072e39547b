"""The outcomes of an agent's run, and what follows from a row of any outcome.

`classification` holds the conditions. Retry rules, flags among the metrics, the types of a failing endpoint and the
documents' table are made from the rows. Further rows stand on error classes (`rollout_sandbox.outcomes`) and on
features; `CliAgentEnvConfig.outcomes` collects all.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from rollout_sandbox.outcomes import Outcome, installed_outcomes
from verifiers.v1.configs.retries import RetryConfig, RetryRule

from opencode_env.errors import AgentError, NodeLostError, NodeMemoryError

AgentErrors = Literal["score", "error"]
"""What becomes of a run that the agent itself has broken: scored as it is, or an `AgentError`."""


NO_ANSWER = "before the model's first answer"
"""With what the message of an error begins that ended a rollout in which the policy has done nothing yet."""


class RunOutcome:
    """Those of an agent's run, and those that errors of verifiers' own types tell.

    Some stops are written elsewhere and only recognised here: `agent_timeout` by verifiers, `content_filter` by an
    agent's harness. With another name in its row, such a stop must be renamed on the trace too: in
    `GuardedSession.close`, before its metrics, with `trace.stop(…, override=True)`. What else asks reads the row.
    """

    COMPLETED = Outcome(
        "empty, truncated or reasoning-only answer; malformed or unknown tool calls; giving up", "it is data"
    )
    AGENT_TIMEOUT = Outcome(
        "the agent's time limit, also while a first answer was coming or was awaited unstreamed",
        "raise it if it is not meant",
        stop="agent_timeout",
        metric="agent_timeout",
    )
    LIMIT = Outcome(
        "`max_turns`, a token budget, the bytes of the traces (`--env.gateway.max-trace`), a summary that saved too "
        "little (`--env.agent.harness.compaction-gain`), a stop of the task's",
        "raise the limit if it is not meant",
        also="stop `max_turns`, `max_*_tokens`, `max_trace`, `compaction_gain`, …",
    )
    CONTEXT_FULL = Outcome(
        "the conversation outgrew the model's window",
        "a larger window, or compaction",
        stop="max_total_tokens",
        metric="context_overflow",
    )
    CONTENT_FILTER = Outcome("the endpoint filtered the answer", "it is data", stop="content_filter")
    REQUEST_REFUSED = Outcome(
        "the run ended on a request over the bounds of `--env.gateway`",
        'raise the option that `trace.info["gateway"]` names, if it is not meant',
        stop="request_refused",
    )
    AGENT_BROKE = Outcome(
        "after its first tool call the agent broke, was killed, loops, or lost its log or state, or the endpoint "
        "refuses what is in a call (400, 404, 413, 422)",
        "its own programs can do that; `own_error` says what; `--env.agent-errors error` makes an `AgentError` of it, "
        "which is not scored and not tried again",
        stop="agent_error",
        metric="agent_error_own",
        also="on the files as they are, `agent_error` = 1",
    )
    AGENT_ERROR = AgentError.outcome
    OUTLIVED = Outcome(
        "the agent's processes outran their end, and everything in the sandbox was ended with them",
        "it is data",
        metric="agent_survived",
        also="reward 0",
    )
    SCORING_OVERRUN = Outcome(
        "programs that may be the agent's used the time of scoring",
        "a scoring limit below the sum of its commands' is warned about",
        also='reward 0, `trace.info["agent"]["scoring_overrun"]`',
    )
    NO_ANSWER = Outcome(
        "before the model's first answer in this rollout the prompt does not fit into the window or a budget, the "
        "endpoint refuses the request (400, 404, 413, 422), or a stop of the task's ends the run",
        "the message quotes the endpoint and names the option: `--sampling.max-tokens`, "
        "`--env.agent.harness.context-window`, a larger window or budget",
        errors=("ProviderError", "HarnessError"),
        again=False,
        begins=NO_ANSWER,
        also=f"the message begins with `{NO_ANSWER}`",
    )
    UNREADABLE = Outcome(
        "scoring or finalizing could not read what the agent made, and could with a neutral answer",
        "it is data, unless a warning shows a fault of the scorer's own",
        metric="answer_unreadable",
        also='its rewards 0, `trace.info["unreadable"]`',
    )
    ENDPOINT_FAILED = Outcome(
        "the model endpoint fails after the agent's retries (408, 429, 5xx, refused, cut or broken streams, answers "
        "that break off or lack log-probabilities), refuses the key (401, 402, 403; at a seat "
        "`summary` of its own any 4xx but 400, 413 and 422), is silent for longer than the "
        "agent waits, or until its time limit where a first answer was to be streamed; before the first tool call also "
        "if it refuses what is in a call",
        "fix the endpoint or the engine",
        errors=("ProviderError", "InterceptionError"),
        endpoint=True,
    )
    AGENT_FAILED = Outcome(
        "the agent did not start, made no model call, broke before its first tool call, or was killed in the confined "
        "sandbox while the kernel ended processes of it, below its limit, for want of memory",
        "read it: it ends with the agent's log; `--env.agent.harness.log-dir` keeps all",
        errors=("HarnessError",),
    )
    NOT_STARTED = Outcome(
        "the agent sat before its first model call, and a second start of it did, or its time limit ended the first "
        "start",
        "`--env.agent.harness.startup-time` on a slow machine; the log",
        errors=("HarnessError",),
    )
    PICTURES = Outcome(
        "a task or its user shows a picture, and the renderer reads text only, or `images` is not set",
        "a renderer that takes images; `--env.agent.harness.images true`",
        errors=("HarnessError",),
    )
    RENDERER = Outcome(
        "the training client's renderer cannot continue what was sampled, or cannot be built",
        "what the message names",
        errors=("EnvError",),
        also="on the episode, no sandbox started",
    )
    SANDBOX_GONE = Outcome(
        "before the agent's first tool call the sandbox is gone, or failed, or processes could not be ended",
        "`--env.retries`",
        errors=("SandboxError",),
    )
    TUNNEL_LOST = Outcome(
        "the tunnel or proxy before the interception went, or an agent clogged it (it is shared)",
        "`--env.retries` tries again and waits up to two minutes for another; bound requests per sandbox at the proxy "
        "when it persists",
        errors=("TunnelError",),
        also="within seconds",
    )
    STAGE_TIMEOUT = Outcome(
        "a `setup` command or hook of the task failed; setup, finalize or scoring deadline",
        "fix the row; `--env.agent.timeout.*`",
        errors=("TaskError",),
    )
    WRONG_PLACE = Outcome(
        "the work directory is not an absolute path, or is part of the system; a row asks for an image on the local "
        "sandbox",
        "name another `workdir`; `--env.agent.runtime.type docker`, `podman`, …",
        errors=("TaskError",),
    )
    NODE_LOST = NodeLostError.outcome
    NODE_MEMORY = NodeMemoryError.outcome


def all_outcomes(of_features: Iterable[Outcome] = ()) -> list[Outcome]:
    """Every way in which a rollout can end: those of an agent's run, of features, of installed distributions."""
    own = [row for row in vars(RunOutcome).values() if isinstance(row, Outcome)]
    return [*own, *of_features, *installed_outcomes()]


def retries_of_outcomes(retries: RetryConfig, outcomes: Iterable[Outcome]) -> RetryConfig:
    """The same retries, but none of the outcomes that are not tried again, where no rule of the user's matches that."""
    rules = [
        RetryRule(type=name, message=f"^{re.escape(row.begins)}" if row.begins else None, max_retries=0)
        for row in outcomes
        if not row.again
        for name in row.errors
    ]
    return retries.model_copy(
        update={"rules": [*retries.rules, *(rule for rule in rules if rule not in retries.rules)]}
    )


def flags_of_outcomes(ended: Collection[Outcome], outcomes: Iterable[Outcome]) -> dict[str, float]:
    """The metrics of all rows: 1 where one of the outcomes that a rollout has `ended` with names it, else 0."""
    met = {row.metric for row in ended}
    return {row.metric: float(row.metric in met) for row in outcomes if row.metric}


def endpoint_errors() -> frozenset[str]:
    """Types of the failures that the endpoint, or the path to it, has caused."""
    return frozenset(name for row in all_outcomes() if row.endpoint for name in row.errors)


def documented(outcomes: Sequence[Outcome]) -> str:
    """The table of the documents, in Markdown."""
    lines = ["| what happened | trace | what to do |", "| --- | --- | --- |"]
    for row in outcomes:
        seen = [", ".join(f"`{name}`" for name in row.errors) or "ok, scored"]
        seen += [f"stop `{row.stop}`"] if row.stop else []
        seen += [f"`{row.metric}` = 1"] if row.metric else []
        seen += [row.also] if row.also else []
        advice = row.advice if row.again else f"{row.advice}: not tried again by default"
        lines.append(f"| {row.when} | {'; '.join(seen)} | {advice} |")
    return "\n".join(lines)
