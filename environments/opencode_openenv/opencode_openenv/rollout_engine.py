"""One rollout from its description to its result, on the environment that `vf-eval` runs.

The path of a rollout is `Env.run_slot`, as for every other caller here; this module says what its task, endpoint and
sampling are, and what its episode means to the caller.
"""

import hashlib
import hmac
import math
import os
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from opencode_env.cli_agent.interception.answer_steps import LOGPROBS_RECORD
from opencode_env.cli_agent.interception.callers import own_calls
from opencode_env.cli_agent.outcomes import RunOutcome
from opencode_env.cli_agent.traces import AGENT_RECORD, AnyTrace
from opencode_rubrics.verify_commands import REWARD_FILE_KEY, UNREADY_KEY
from opencode_runs.trainable.samples import recorded_parts, untrained_answers
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.env import EnvConfig
from verifiers.v1.episode import Episode
from verifiers.v1.task import Task
from verifiers.v1.trace import ModelCall
from verifiers.v1.utils.loaders import load_environment

from opencode_openenv.model_calls import ModelEndpoint, client_of, sampling_of
from opencode_openenv.result import Role, RolloutCommand, RolloutResult, RolloutTurn, TrainingTrace, TrainingTurn
from opencode_openenv.spec import RolloutSpec
from opencode_openenv.task import FILES_RECORD, SETUP_RECORD, RolloutTask

_TAIL_CHARS = 2000
MAX_TRACE_TOKENS = 4_000_000
"""Tokens of all turns, their prompts included: more would be an answer that OpenEnv's clients do not take (100 MB)."""


class LentKeys:
    """Keys of callers, lent to verifiers' clients for as long as their rollouts last.

    verifiers reads a key from the environment variable that an endpoint's configuration names, and records the
    configuration on the trace: so a key gets a variable of its own. Equal keys share one, whose name says nothing of
    the key, and none outlives its last rollout. Programs in a sandbox see none of this process's variables.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._uses: Counter[str] = Counter()

    @contextmanager
    def lend(self, key: str) -> Iterator[str]:
        """The name of the variable that holds `key` until the end of the context."""
        digest = hmac.new(self._secret, key.encode(), hashlib.sha256).hexdigest()[:32]
        name = f"OPENCODE_OPENENV_{digest.upper()}_KEY"
        os.environ[name] = key
        self._uses[name] += 1
        try:
            yield name
        finally:
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name], os.environ[name]


class RolloutEngine:
    """Runs rollouts while it is open (`async with engine.open()`); many at once."""

    def __init__(self, config: EnvConfig) -> None:
        self._env = load_environment(config)
        self._keys = LentKeys()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["RolloutEngine"]:
        """Hold what rollouts share; a `SandboxError` where the confined local sandbox does not work here."""
        async with self._env.serving():
            yield self

    async def rollout(self, spec: RolloutSpec, endpoint: ModelEndpoint) -> RolloutResult:
        """Run one rollout to its end. Its failures are in the result; cancelling it removes its sandbox."""
        with self._keys.lend(endpoint.api_key) as variable:
            context = ModelContext(endpoint.model, client_of(spec, endpoint, variable), sampling_of(spec, endpoint))
            task: Task[Any, Any, Any] = RolloutTask.of(spec)
            (slot,) = self._env.slots(task)
            episode = await self._env.run_slot(slot, context)
        return result_of(spec, episode)


def turns_of(traces: Mapping[Role, AnyTrace]) -> list[RolloutTurn]:
    """The agent's own calls and its sub calls in order of their end; those that its programs made as if they were it
    are not turns."""
    calls = [(call, role, trace) for role, trace in traces.items() for call in own_calls(trace)]
    calls.sort(key=lambda entry: entry[0].time.end)
    reported = {
        role: {entry["node"]: entry for entry in trace.info.get(LOGPROBS_RECORD, ())} for role, trace in traces.items()
    }
    return [_turn(trace, number, role, call, reported[role]) for number, (call, role, trace) in enumerate(calls, 1)]


def _turn(
    trace: AnyTrace, number: int, role: Role, call: ModelCall, reported: Mapping[int, Mapping[str, list[Any]]]
) -> RolloutTurn:
    turn = RolloutTurn(
        turn=number,
        role=role,
        finish_reason=call.finish_reason,
        latency_s=round(call.time.duration, 3),
        timestamp=call.time.start,
        upstream_status=call.error.status_code if call.error else 200,
    )
    if call.error is not None:
        turn.upstream_error = {"type": call.error.type, "message": call.error.message[:500]}
    if call.node is None:
        return turn
    node = trace.nodes[call.node]
    if len(node.token_ids):
        pairs = zip(node.token_ids, node.mask, strict=True)
        turn.completion_token_ids = [int(token) for token, sampled in pairs if sampled]
        turn.per_token_logps = [float(value) for value in node.logprobs]
    elif entry := reported.get(call.node):
        turn.completion_tokens = list(entry["tokens"])
        turn.per_token_logps = [float(value) for value in entry["logprobs"]]
    return turn


def call_log(traces: Mapping[Role, AnyTrace]) -> str:
    lines = []
    calls = [(call, role) for role, trace in traces.items() for call in trace.calls]
    calls.sort(key=lambda entry: entry[0].time.end)
    for number, (call, role) in enumerate(calls, 1):
        if call.error:
            said = f"{call.error.status_code or ''} {call.error.type}: {call.error.message[:200]}"
        else:
            said = f"200 {call.finish_reason}"
        lines.append(f"{number} {role} {call.endpoint} {call.time.duration:.3f} s {said}".replace("\n", " "))
    return "\n".join(lines)[-_TAIL_CHARS:]


class _NoTrainingTraceError(ValueError):
    """A rollout has no training trace; the message says why."""


def training_trace(traces: Mapping[Role, AnyTrace]) -> TrainingTrace:
    """The training trace of a rollout's traces, or the reason why there is none."""
    turns: list[TrainingTurn] = []
    tokens = 0
    for turn in (turn for role, trace in traces.items() for turn in _turns(role, trace)):
        tokens += len(turn.loss_mask)
        if tokens > MAX_TRACE_TOKENS:
            raise _NoTrainingTraceError(f"the turns hold more than {MAX_TRACE_TOKENS:,} tokens with their prompts")
        turns.append(turn)
    if not turns:
        raise _NoTrainingTraceError("the model gave no answer")
    return TrainingTrace(turns=turns)


def _turns(role: Role, trace: AnyTrace) -> Iterator[TrainingTurn]:
    calls = {call.node: call for call in trace.calls if call.node is not None}
    own = {call.node for call in own_calls(trace)}
    left_out = untrained_answers(recorded_parts(trace))
    trains = own if role == "main" or (trace.agent is not None and trace.agent.trainable) else set()
    for number, node in enumerate(trace.nodes):
        if not node.sampled or number in left_out:
            continue
        if not len(node.token_ids):
            raise _NoTrainingTraceError("the endpoint gave no token ids: ask with token_ids = true")
        sampled = sum(map(bool, node.mask))
        ids, logprobs = [int(token) for token in node.token_ids], [float(value) for value in node.logprobs]
        cut = len(ids) - sampled
        if not sampled or len(logprobs) != sampled or not all(node.mask[cut:]):
            raise _NoTrainingTraceError(f"answer {number} has {len(logprobs)} logprobs for {sampled} sampled tokens")
        if any(not math.isfinite(value) or value > 0 for value in logprobs):
            raise _NoTrainingTraceError(f"answer {number} has a logprob that is not a number")
        before, parent = _before(trace, node.parent)
        program = number not in own
        prompt = [*before, *ids[:cut]]
        request, response = _request_and_response(calls.get(number))
        yield TrainingTurn(
            node_id=f"{trace.id}:{number}",
            prompt_token_ids=prompt,
            completion_token_ids=ids[cut:],
            per_token_logps=logprobs,
            loss_mask=[0] * len(prompt) + [int(number in trains)] * sampled,
            request=request,
            response=response,
            metadata={"role": role, "parent": None if parent is None else f"{trace.id}:{parent}", "program": program},
        )


def _before(trace: AnyTrace, parent: int | None) -> tuple[list[int], int | None]:
    """The tokens from the root to a node, and the last sampled node among them."""
    path: list[int] = []
    while parent is not None:
        path.append(parent)
        parent = trace.nodes[parent].parent
    tokens = [int(token) for number in reversed(path) for token in trace.nodes[number].token_ids]
    return tokens, next((number for number in path if trace.nodes[number].sampled), None)


def _request_and_response(call: ModelCall | None) -> tuple[dict[str, Any], dict[str, Any]]:
    if call is None:
        return {}, {}
    sampling = call.sampling.model_dump(exclude_none=True) if call.sampling else {}
    usage = call.usage.model_dump(exclude_none=True) if call.usage else {}
    return {"model": call.model, "sampling": sampling}, {"finish_reason": call.finish_reason, "usage": usage}


def result_of(spec: RolloutSpec, episode: Episode[Any, Any, Any]) -> RolloutResult:
    result = RolloutResult(task_id=spec.task_id, mode=spec.mode)
    traces = {_role(trace): trace for trace in episode.traces}
    trace = traces.get("main")
    error = (trace and trace.last_error) or next(reversed(episode.errors), None)
    if error is not None:
        message, result.stop_condition = error.message[:4000], "error"
        told_alone = message.startswith("setup command failed (")
        result.error = message if told_alone else f"{error.type}: {message}"
    if trace is None:
        result.training_trace_reason = "the rollout failed before the agent"
        return result
    _add_trace(result, trace)
    if spec.mode == "black_box":
        result.training_trace_reason = "mode = black_box records no turns"
    else:
        result.proxy_turns, result.proxy_log_tail = turns_of(traces), call_log(traces)
        try:
            result.training_trace = training_trace(traces)
        except _NoTrainingTraceError as reason:
            result.training_trace_reason = str(reason)
    if error is None and trace.stop_condition == RunOutcome.AGENT_TIMEOUT.stop:
        result.error = f"agent timeout: the agent had not ended after {spec.agent_timeout_s:g} s"
    return result


def _add_trace(result: RolloutResult, trace: AnyTrace) -> None:
    record, files = trace.info.get(AGENT_RECORD, {}), trace.info.get(FILES_RECORD, {})
    runtime = trace.agent.runtime if trace.agent is not None else None
    # A local sandbox's id is its directory on this machine, which is not told.
    result.sandbox_id = str(runtime.id or "").rpartition("/")[2].removeprefix(".vf-") if runtime is not None else ""
    result.stop_condition = result.stop_condition or trace.stop_condition
    result.agent_exit_code = record.get("exit_code")
    result.setup_results = [_command(entry) for entry in trace.info.get(SETUP_RECORD, ())]
    result.verify_results = [_command(entry) for entry in trace.info.get("verify", ())]
    result.files, result.files_extra = files.get("texts", {}), files.get("others", [])
    result.agent_log_tail = str(record.get("log_tail") or "")[-_TAIL_CHARS:]
    result.reward_note = str(trace.info.get(REWARD_FILE_KEY) or trace.info.get(UNREADY_KEY) or "")
    if trace.ok and any(reward is not None for reward in trace.rewards.values()) and math.isfinite(trace.reward):
        result.reward = float(trace.reward)


def _role(trace: AnyTrace) -> Role:
    return "sub" if trace.agent is not None and trace.agent.name == "sub" else "main"


def _command(entry: dict[str, Any]) -> RolloutCommand:
    return RolloutCommand(
        cmd=entry["command"],
        exit_code=124 if entry["timed_out"] else entry["exit_code"],
        stdout=entry["stdout"],
        stderr=entry["stderr"],
        duration_s=entry["duration"],
    )
