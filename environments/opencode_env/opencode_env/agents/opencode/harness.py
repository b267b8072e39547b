"""`OpenCodeHarness`: the OpenCode coding agent as a verifiers harness, on any runtime and for any taskset.

A rollout from top to bottom: the harness installs OpenCode (`setup`), its session writes OpenCode's files (`prepare`)
and runs it once per segment (`turn`), the calls and the log say how that ended (`outcome_of`), and `close` records it.

Until the model has called a tool, here is the one place that tells for OpenCode what the policy did from what the
infrastructure did to it; from then on `cli_agent.classification` judges what is raised here once more. OpenCode's exit
code alone tells neither: it is 0 after some failures and 1 after some ends that are the model's doing, so the calls
that the interception recorded come first. The log, into which the agent can write, only explains.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar

from opencode_rubrics import require_alive, run_checked, upload_bundle, workdir_of
from rollout_sandbox.compat import abilities_of, run_program
from rollout_sandbox.confined import Bind
from verifiers.v1.clients import ModelContext
from verifiers.v1.errors import HarnessError, ProviderError, SandboxError, TaskError
from verifiers.v1.harness import Harness, HarnessSession
from verifiers.v1.harnesses.utils.install import remove_dir
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.trace import ModelCall
from verifiers.v1.types import Messages

from opencode_env.agents.opencode.builds import CachedBuild, cached_build, ensure_build, host_platform
from opencode_env.agents.opencode.config import (
    BUILT_IN_TOOLS,
    OpenCodeHarnessConfig,
    build_config,
    is_summary_prompt,
    render_config,
    summary_start,
)
from opencode_env.agents.opencode.install import InstallRecord, install
from opencode_env.agents.opencode.state import (
    CONFIG_DIR,
    NO_PROGRAM,
    STATE_BASE,
    SegmentPrompt,
    begun_of,
    program,
    segment_files,
    segment_prompt,
    shows_images,
    state_archive,
    write_state,
)
from opencode_env.cli_agent.classification import overflowed, recovered, require_model_calls
from opencode_env.cli_agent.guard import GuardedHarness
from opencode_env.cli_agent.interception import own_calls
from opencode_env.cli_agent.interception.conversations import compaction_metrics, history_forks
from opencode_env.cli_agent.interception.endpoint import EndpointClient
from opencode_env.cli_agent.interception.window import listed_window
from opencode_env.cli_agent.outcomes import RunOutcome
from opencode_env.cli_agent.process_fence import ProcessFence, agents_view
from opencode_env.cli_agent.rollout import Patience, PlayedBefore, rollout_of
from opencode_env.cli_agent.runaway import run_started
from opencode_env.cli_agent.traces import AnyTrace, agent_record, tool_counts
from opencode_env.errors import ConfigurationError

EVENTS_TAIL_BYTES = 256 * 1024
"""How much of the end of the event stream is read: more than the largest single event."""

_MOST_EVENTS = 4000
"""How many lines of that are parsed: more than OpenCode writes into it."""
_LOG_TAIL_BYTES = 4000
"""How much of the end of the events, and of standard error, the trace keeps."""
_SESSION = re.compile(r"ses_[A-Za-z0-9]{10,64}")
SEPARATOR = "\x1eopencode-env\x1e"
"""What stands between events and standard error where both come in one output."""


@dataclass(frozen=True)
class ErrorEvent:
    """An `error` event: OpenCode's name for the failure and its message."""

    name: str
    message: str


@dataclass(frozen=True)
class RunLog:
    """The end of one rollout's log."""

    session_id: str | None = None
    error: ErrorEvent | None = None
    """The last event, when it was an error; an error that OpenCode worked on after is not one."""
    events_tail: str = ""
    stderr_tail: str = ""

    def tail(self, size: int) -> str:
        """The last `size` bytes of the events, followed by the last `size` of standard error when there is any."""
        parts = [_last(self.events_tail, size), _last(self.stderr_tail, size)]
        return "\n".join(part for part in parts if part)


async def read_log(runtime: Runtime, state: str) -> RunLog:
    """Read the end of the log in `state`.

    Raises:
        HarnessError: when the log cannot be read in a sandbox that lives: the agent can have seen to that.
    """
    argv = ["sh", "-c", program("tails.sh"), "tails", state, str(EVENTS_TAIL_BYTES), SEPARATOR]
    failure = "cannot read OpenCode's log"
    result = await run_checked(runtime, argv, failure, accepted=range(256), error=HarnessError)  # told by its content
    log = split_log(result.stdout)
    if log is None:
        await require_alive(runtime, "reading OpenCode's log")
        raise HarnessError(f"cannot read OpenCode's log: it was cut off, {result.stderr.strip()[-500:]}")
    return log


def split_log(output: str) -> RunLog | None:
    """The log in the output of `tails.sh` or `launch.sh`; None when it was cut before the separator."""
    events, found, stderr = output.rpartition(SEPARATOR)
    return parse_log(events, stderr) if found else None


def parse_log(events: str, stderr: str) -> RunLog:
    """Parse the end of an event stream; lines end at `\\n` only, and a first cut line is skipped."""
    session: str | None = None
    error: ErrorEvent | None = None
    for line in events.split("\n")[-_MOST_EVENTS:]:
        event = _event(line)
        if event is None:
            continue
        found = event.get("sessionID")
        if isinstance(found, str) and _SESSION.fullmatch(found):
            session = found
        error = _error(event) if event.get("type") == "error" else None
    return RunLog(session, error, events, stderr)


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):  # the agent can write anything into the log, deep nesting included
        return None
    return event if isinstance(event, dict) else None


def _error(event: dict[str, Any]) -> ErrorEvent:
    error = event.get("error")
    if not isinstance(error, dict):
        return ErrorEvent("UnknownError", str(error)[:2000])
    data = error.get("data")
    message = data.get("message") if isinstance(data, dict) else None
    return ErrorEvent(str(error.get("name") or "UnknownError"), str(message or error)[:2000])


def _last(text: str, size: int) -> str:
    return text.encode(errors="replace")[-size:].decode(errors="ignore").strip() if size else ""


_TIMED_OUT = "The operation timed out."
"""OpenCode's words when `provider_timeout` is over. The interception is still waiting then and has recorded no call."""


class AgentOutcome(StrEnum):
    """Names how a sound run ended."""

    COMPLETED = "completed"
    """OpenCode exited by itself after the model's last answer."""
    STOPPED = "stopped"
    """A limit or a `@stop` refused the next turn; the trace's stop condition names it."""
    CONTEXT_WINDOW = "context_window"
    """The endpoint refused the request because the conversation no longer fits the model's window."""
    CONTENT_FILTER = "content_filter"
    """The endpoint ended the answer for its content."""


@dataclass(frozen=True)
class SegmentRecord:
    """Holds what is known of one run of OpenCode."""

    exit_code: int
    calls: Sequence[ModelCall]
    """The model calls of this run, in order of their end."""
    stop_condition: str | None
    log: RunLog
    overdue: bool = True
    """Whether a model call may have been under way for as long as OpenCode waits."""


def outcome_of(segment: SegmentRecord) -> AgentOutcome:
    """Return how a run ended, if that was the policy's doing.

    Raises:
        ProviderError: a model call failed or took too long, and OpenCode did not recover from it.
        InterceptionError: a model call failed on the path between OpenCode and the interception.
        HarnessError: OpenCode crashed, was killed, reported an error, or ended without a single model call.
    """
    if segment.stop_condition is not None:
        return AgentOutcome.STOPPED
    error = segment.log.error
    if segment.overdue and segment.exit_code == 1 and error is not None and error.message == _TIMED_OUT:
        raise ProviderError(_describe(segment, "gave up waiting for the model (provider_timeout)"), status_code=504)
    require_model_calls(segment.calls, _state(segment))
    if overflowed(segment.calls):
        return AgentOutcome.CONTEXT_WINDOW
    last = segment.calls[-1]
    if segment.exit_code == 1 and last.finish_reason is None and last.node is not None:
        return AgentOutcome.CONTENT_FILTER
    # Behind a refusal that it recovered from, OpenCode exits as behind any error, whatever the last answer is.
    summarised = segment.exit_code == 1 and last.node is not None and any(recovered(segment.calls))
    if (segment.exit_code == 0 or summarised) and segment.log.error is None:
        return AgentOutcome.COMPLETED
    if segment.exit_code < 0 or segment.exit_code > 128:
        raise HarnessError(_describe(segment, "was killed or crashed"))
    raise HarnessError(_describe(segment, "reported an error"))


def _describe(segment: SegmentRecord, what: str) -> str:
    return f"OpenCode {what} {_state(segment)}"


def _state(segment: SegmentRecord) -> str:
    error = segment.log.error
    named = f": {error.name}: {error.message}" if error else ""
    tail = segment.log.tail(1500) or "<no output>"
    return f"(exit {segment.exit_code}){named}; the end of its log:\n{tail}"


def rollout_metrics(trace: AnyTrace) -> dict[str, float]:
    """Return how often the model called each of OpenCode's own tools that it was offered, and how often the history of
    a conversation changed or was summarised."""
    counts, offered = tool_counts(trace), {tool.name.lower() for node in trace.nodes for tool in node.tools}
    tools = {f"{tool}_calls": float(counts[tool]) for tool in BUILT_IN_TOOLS if tool in offered}
    return {**tools, "history_forks": history_forks(trace), **compaction_metrics(trace)}


_MAX_LOG_BYTES = 64 * 1024 * 1024
"""Cap of the log file that `log_dir` keeps per rollout."""
MARKER = "opencode-env: go on"
"""A message that OpenCode's plugin puts in no place of its own: without one OpenCode does not go on with a session."""
CODE_VARIABLE = "OPENCODE_ENV_CODE"
"""Environment variable of OpenCode with the code of this run, of which its plugin makes the mark of its model calls."""


class OpenCodeSession(HarnessSession):
    """Drives OpenCode for one rollout; `turn` runs one segment, natively continuing OpenCode's session."""

    harness: Harness[OpenCodeHarnessConfig]

    def __init__(self, *arguments: Any, fence: ProcessFence, programs: str) -> None:
        """Arguments as of `HarnessSession`; `programs` is the directory of OpenCode in the sandbox."""
        super().__init__(*arguments)
        self._programs = programs
        self._workdir = workdir_of(self.trace)
        self._fence = fence
        self._rollout = rollout_of(self.trace)
        self.state = ""
        """OpenCode's directory in the sandbox, once prepared."""
        self._written = False
        """Whether the next segment's prompt is in the state directory already."""
        self._images = True
        """Whether the models of this rollout are shown images."""
        self._log = RunLog()
        self._outcome: AgentOutcome | None = None
        self._exit_code: int | None = None
        self._segments = 0
        self._rendered = ""
        """Text of `opencode.json`."""

    async def prepare(self) -> None:
        """Write OpenCode's state directory, install skills, and draw the line before the agent."""
        config = self.harness.config
        first = segment_prompt(self.data.prompt) if self.data.prompt is not None else None
        self._images = await shows_images(config.images, self.models(), first)
        built = build_config(
            config,
            model=config.prompt_model or self.ctx.model,
            endpoint=self.endpoint,
            secret=self.secret,
            mcp_servers=self.mcp_urls,
            mcp_headers=config.resolve_mcp_headers(self.mcp_urls),
            repeats=self._rollout.gateway is not None,
            images=self._images,
            window=await self._window(),
        )
        whole = self.extend_config(built)
        self._rendered = render_config(whole)
        if self._rollout.gateway is not None:
            summaries = self._rollout.gateway.summaries
            summaries.at = summary_start(whole)
            summaries.prompt = partial(is_summary_prompt, config, whole, self.system_append())
            summaries.trains = config.compaction_trains
        if self._rollout.before is not None:
            await self._prepare_continued(self._rollout.before)
            return
        self._written = first is not None
        output = await self._prepare_first(self._archive(first))
        self.state, _, marked = output.removeprefix("state=").partition("\n")
        await self._install_skills()
        await self._fence.mark(marked)

    async def _window(self) -> int | None:
        """Tokens of the window that OpenCode plans its compaction by: the smallest of its models', as far as known."""
        config = self.harness.config
        if config.disable_compaction or config.context_window != "auto":
            return config.context_window if isinstance(config.context_window, int) else None
        other = self._rollout.summary_seat
        asked = (*self.models(), *(() if other is None else (other.ctx,)))
        listed = [await self._listed_window(ctx) for ctx in asked]
        return min((window for window in listed if window is not None), default=None)

    async def _listed_window(self, ctx: ModelContext) -> int | None:
        gateway = self._rollout.gateway
        side = None if gateway is None or gateway.side is None else gateway.side.session
        sessions = () if gateway is None else (gateway.main, side, gateway.summariser)
        client = next((one.client for one in sessions if one is not None and one.ctx.client == ctx.client), None)
        if isinstance(client, EndpointClient):  # which all rollouts share
            return await client.limits.listed(ctx.model)
        return await listed_window(ctx.client, ctx.model)

    async def _prepare_continued(self, before: PlayedBefore) -> None:
        """Begin a further segment in the files of a kept turn, for which nobody says anything."""
        gateway = self._rollout.gateway
        if gateway is not None and (limit := gateway.calls.used_up) is not None:
            raise TaskError(
                f"kept turn {before.place} cannot be continued: what was played before it uses up {limit}: "
                f"raise --env.agent.{limit.replace('_', '-')} or choose an earlier turn"
            )
        self.state = STATE_BASE
        try:
            await self._begin_again(SegmentPrompt(MARKER), before.conversation)
        except HarnessError as error:
            raise TaskError(f"kept turn {before.place} cannot be continued: {error}") from error
        await self._fence.mark()
        self._written = True

    def _archive(self, prompt: SegmentPrompt | None, begun: Mapping[str, Mapping[str, Any]] | None = None) -> bytes:
        return state_archive(self._rendered, self.system_append(), self.extra_files(), prompt, begun)

    async def _install_skills(self) -> None:
        await self.harness.install_skills(self.runtime, f"{self.state}/{CONFIG_DIR}/skills")

    async def _prepare_first(self, archive: bytes) -> str:
        """Unpack the archive and mark the processes in one command; returns what that printed."""
        result = await write_state(self.runtime, archive, self._workdir, self._programs, self._fence.mark_script)
        if result.exit_code == NO_PROGRAM:  # the image was thought to hold OpenCode; ask the sandbox itself
            record = InstallRecord()
            self._programs = await install(self.harness.config, self.runtime, trust_image=False, record=record)
            record.add_to(self.trace)
            result = await write_state(self.runtime, archive, self._workdir, self._programs, self._fence.mark_script)
        if not result.stdout.startswith(f"state={STATE_BASE}"):
            raise SandboxError(f"preparing OpenCode's files failed, it printed: {result.stdout[-500:]}")
        return result.stdout

    def extend_config(self, built: dict[str, Any]) -> dict[str, Any]:
        """OpenCode's configuration of this rollout; a subclass adds to it."""
        return built

    def models(self) -> Sequence[ModelContext]:
        """The models that answer OpenCode, which knows them by one name."""
        return (self.ctx,)

    def extra_files(self) -> Mapping[str, str]:
        """Further files of the state directory by relative path; those under `bin/` are programs on the PATH."""
        return {}

    def system_append(self) -> str:
        """Text behind the system prompt: the configured ones, then the task's own."""
        config = self.harness.config
        own = config.system_prompt if config.system_prompt_mode == "append" else None
        first = segment_prompt(self.data.prompt).system if self.data.prompt is not None else ""
        parts = (own, config.task_system_prompt, self.data.system_prompt, first)
        return "\n\n".join(part for part in parts if part)

    async def turn(self, messages: Messages | None = None) -> None:
        """Run one segment to OpenCode's exit: the task's prompt, or the user's next `messages`.

        Raises:
            RolloutError: the type of the boundary that broke; the policy's own doing raises nothing.
        """
        if self._closed:
            raise HarnessError(f"harness {self.harness.config.id!r} session is already closed")
        prompt = messages if messages is not None else self.data.prompt
        if self._rollout.before is not None and self._written:
            prompt = MARKER
        if prompt is None:
            raise HarnessError("the task has no prompt and the user sent no message")
        first_call = len(self.trace.calls)
        self._written = self._written and messages is None
        self._exit_code, self._outcome = None, None
        try:
            asked = segment_prompt(prompt)
        except ValueError as error:  # of the task or its user
            raise ConfigurationError(str(error)) from error
        args = await self._write_prompt(asked)
        self._written = False
        self._segments += 1
        launched = time.time()
        try:
            result = await self._started(args)
        finally:
            self._rollout.program.revoke()
        self._exit_code = agent_record(self.trace)["exit_code"] = result.exit_code
        self._log = await self._read_log(result)
        calls = own_calls(self.trace, first_call)
        silent = time.time() - max((call.time.end for call in calls), default=launched)
        overdue = silent >= self.harness.config.provider_timeout
        segment = SegmentRecord(result.exit_code, calls, self.trace.stop_condition, self._log, overdue)
        self._outcome = outcome_of(segment)
        self._check_plugin()
        if self._outcome is AgentOutcome.CONTENT_FILTER:
            self.trace.stop(RunOutcome.CONTENT_FILTER.stop)

    async def _write_prompt(self, prompt: SegmentPrompt) -> list[str]:
        """Put the prompt's files in place, if they are not; returns OpenCode's arguments for this segment."""
        if prompt.pictures and not self._images:
            raise ConfigurationError(
                "the task or its user shows pictures, and the model is shown none: set --env.agent.harness.images true "
                "if its endpoint takes them (a training client's renderer that reads text only does not: name one that "
                "takes images, such as qwen3-vl), or leave the task out"
            )
        session = self._session_id
        if self._segments and session is None:
            raise HarnessError("OpenCode's log names no session, so the conversation cannot be continued")
        if session is not None and not self._written:
            await self._begin_again(prompt, session)
        elif not self._written:
            failure = "writing the prompt failed"
            await upload_bundle(self.runtime, segment_files(prompt), self.state, failure=failure, error=HarnessError)
        args = [arg for picture in prompt.pictures for arg in ("--file", f"{self.state}/pictures/{picture.name}")]
        if session is None:
            return args
        # The agent that speaks in the session, whatever the store says.
        agent = str(self.harness.config.opencode_config.get("default_agent") or "build")
        return ["--session", session, "--agent", agent, *args]

    @property
    def _session_id(self) -> str | None:
        """OpenCode's session, by its first model call or the kept turn; else by the log, into which the agent can
        write."""
        before = self._rollout.before
        known = self._rollout.first_conversation if before is None else before.conversation
        return known or self._log.session_id

    async def _begin_again(self, prompt: SegmentPrompt, session: str) -> None:
        """Leave of the segments before the conversation and the agent's own files, and none of their processes."""
        await self._fence.end_run()
        archive = self._archive(prompt, self._begun(session))
        await write_state(self.runtime, archive, self._workdir, self._programs, again=(self.state, session))
        await self._install_skills()

    def _begun(self, session: str) -> dict[str, dict[str, Any]]:
        """Return what the rollout's own session and those of its sub-agents began with."""
        first = next((number for number, node in enumerate(self.trace.nodes) if node.sampled), None)
        begun = {} if first is None else begun_of(self.trace, {session: first})
        histories = {} if self._rollout.gateway is None else self._rollout.gateway.histories
        for history in histories.values():
            begun |= begun_of(history.trace, history.forks.first)
        return begun

    async def _started(self, args: list[str]) -> ProgramResult:
        # Not in `_launch`, which begins to run later: who waits for the first call waits for that of the new mark.
        def run(again: bool) -> Coroutine[Any, Any, ProgramResult]:
            return self._launch(args, self._rollout.program.new_run(), again=again)

        if self._rollout.gateway is None:  # verifiers' own server tells of a call when it was answered
            return await run(False)
        return await run_started(run, self.trace, self._fence, self.harness.config.startup_time)

    async def _launch(self, args: list[str], code: str, *, again: bool) -> ProgramResult:
        launch = ("sh", "-c", program("launch.sh"), "opencode", self.state, self._workdir, self._programs)
        argv = [*launch, str(EVENTS_TAIL_BYTES), SEPARATOR, "again" if again else "", *args]
        variables = {**self.harness.config.resolved_env, CODE_VARIABLE: code}
        return await run_program(agents_view(self.runtime), argv, variables)

    async def _read_log(self, result: ProgramResult) -> RunLog:
        log = split_log(result.stdout) or await read_log(self.runtime, self.state)
        stderr = "\n".join(text for text in (log.stderr_tail, result.stderr) if text)
        return RunLog(log.session_id or self._log.session_id, log.error, log.events_tail, stderr)

    def _check_plugin(self) -> None:
        """OpenCode is silent about a plugin that does not load; without ours the prompt changes from day to day."""
        root = self.trace.nodes[0].message if self.trace.nodes else None
        if root is not None and root.role == "system" and "\n  Today's date: " in str(root.content):
            what = "the system prompt still holds the date"
            raise ConfigurationError(f"OpenCode did not load the opencode-env plugin: {what}")

    async def close(self) -> None:
        """End the agent's processes and put this session's record and metrics on the trace. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._rollout.program.forget()
        if not self.state:
            return
        with contextlib.suppress(SandboxError):  # who guards this session asks again, and records what survived
            await self._fence.end()
        if self._exit_code is None:  # timed out or failed: the log of the segment was not read
            with contextlib.suppress(Exception):  # the sandbox may be gone; the record then has no log
                self._log = await read_log(self.runtime, self.state)
        agent_record(self.trace).update(
            version=self.harness.config.version,
            session_id=self._session_id,
            outcome=str(self._outcome) if self._outcome else None,
            exit_code=self._exit_code,
            log_tail=self._log.tail(_LOG_TAIL_BYTES),
        )
        self.trace.record_metrics(rollout_metrics(self.trace))
        await self._keep_log()

    async def _keep_log(self) -> None:
        directory = self.harness.config.log_dir
        if directory is None:
            return
        path = directory / f"{self.trace.id}.log"
        try:
            files = (f"{self.state}/events.jsonl", f"{self.state}/stderr.log")
            parts = [await self.runtime.read(file, _MAX_LOG_BYTES) for file in files]
            directory.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(path.write_bytes, b"".join(parts))
        except (SandboxError, OSError) as error:
            agent_record(self.trace)["log_error"] = str(error)[:500]
        else:
            agent_record(self.trace)["log_file"] = str(path)


class OpenCodeHarness(GuardedHarness[OpenCodeHarnessConfig], Harness[OpenCodeHarnessConfig]):
    """Runs `opencode run` in the rollout's sandbox, every model call through the interception."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_SKILLS = True
    # The confined local sandbox is of the `subprocess` type; a plain subprocess is refused in `setup`.
    NEEDS_CONTAINER = False
    CONTINUES_TURNS: ClassVar[bool] = True
    """Whether a rollout can go on from a kept turn."""
    SESSION: ClassVar[type[OpenCodeSession]] = OpenCodeSession
    """What drives one rollout; a subclass of this harness may name its own."""

    def __init__(self, config: OpenCodeHarnessConfig) -> None:
        super().__init__(config)
        self._installed: dict[str, tuple[str, InstallRecord]] = {}
        """Directory of the programs and how they came by runtime name, between `setup` and `session` of a rollout."""

    async def setup(self, runtime: Runtime) -> None:
        """Install the pinned OpenCode in `runtime`.

        Raises:
            HarnessError: on a plain subprocess runtime, or when OpenCode cannot be installed.
        """
        sandbox = abilities_of(runtime)
        if sandbox.is_this_machine and not sandbox.can_end_agent:
            raise HarnessError(
                "OpenCode would run on this machine without confinement: use --env.id opencode-env (confined local "
                "sandbox) or a container (--env.agent.runtime.type docker | podman | prime)"
            )
        self._installed[runtime.name] = await self._install(runtime)

    def patience(self) -> Patience:
        """Return how long OpenCode puts up with a failing endpoint: six sends, in about 70 s, or of 10 minutes each
        where the endpoint is silent."""
        return Patience(sends=6, seconds=min(self.config.provider_timeout, 3600.0))

    async def _install(self, runtime: Runtime) -> tuple[str, InstallRecord]:
        record = InstallRecord()
        return await install(self.config, runtime, record=record), record

    async def local_binds(self) -> list[Bind]:
        """The host's cached build, for the confined local sandbox to show read-only where `install` looks for it.

        Raises:
            HarnessError: when the build cannot be downloaded.
        """
        if self.config.install == "image":
            return []
        return [self._bind(await asyncio.to_thread(ensure_build, self.config.version, host_platform()))]

    def _bind(self, build: CachedBuild) -> Bind:
        return Bind(build.directory, f"{self.config.asset_dir}/{build.directory.name}")

    def container_binds(self) -> list[Bind]:
        """The host's cached build, for a container on this machine to show read-only where `install` looks for it.
        Nothing while this machine has none: the image may hold OpenCode, and what it lacks is uploaded once."""
        if self.config.install == "image":
            return []
        build = cached_build(self.config.version, host_platform())
        return [] if build is None else [self._bind(build)]

    async def fenced_session(
        self, fence: ProcessFence, ctx: ModelContext, trace: AnyTrace, runtime: Runtime, *connection: Any, **_: Any
    ) -> OpenCodeSession:
        """Prepare the rollout's OpenCode; the mark is printed by the command that prepares its files."""
        known = self._installed.pop(runtime.name, None)
        programs, record = await self._install(runtime) if known is None else known
        record.add_to(trace)
        session = self.SESSION(self, ctx, trace, runtime, *connection, fence=fence, programs=programs)
        await session.prepare()
        rollout_of(trace).agent_directory = session.state
        return session

    async def cleanup(self, trace: AnyTrace, runtime: Runtime) -> None:
        """Remove OpenCode's files where no sandbox takes them along."""
        state = rollout_of(trace).agent_directory
        if state and abilities_of(runtime).is_this_machine:
            await remove_dir(runtime, state, "OpenCode's files")

    async def launch(self, *arguments: Any, **options: Any) -> ProgramResult:
        """Run one whole session of a single segment, for a caller that does not drive sessions."""
        session = await self.session(*arguments, **options)
        try:
            await session.turn()
        finally:
            await session.close()
        return ProgramResult(0, "", "")
