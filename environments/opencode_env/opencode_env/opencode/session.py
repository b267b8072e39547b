"""One rollout's OpenCode inside one sandbox: prepared once, run once per segment, ended before anything is scored.

Invariant: when `close()` returned, either no process of the agent is left in the sandbox, or the record names the
`survivors` and the harness refuses to let the trace be scored.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from verifiers.v1.clients import ModelContext
from verifiers.v1.errors import HarnessError, ProviderError, RolloutError, SandboxError, boundary
from verifiers.v1.harness import HarnessSession
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import TaskData
from verifiers.v1.types import Messages

from opencode_env.cli_agent.process_fence import ProcessFence
from opencode_env.cli_agent.traces import AGENT_RECORD, AnyTrace
from opencode_env.opencode.events import EVENTS_TAIL_BYTES, SEPARATOR, RunLog, read_log, split_log
from opencode_env.opencode.install import install
from opencode_env.opencode.metrics import rollout_metrics
from opencode_env.opencode.opencode_config import build_config, render_config
from opencode_env.opencode.outcome import RUNAWAY_FAILURES, AgentOutcome, SegmentRecord, is_runaway, outcome_of
from opencode_env.opencode.prompt import SegmentPrompt, segment_prompt
from opencode_env.opencode.state import (
    CONFIG_DIR,
    STATE_BASE,
    archive_arguments,
    program,
    segment_archive,
    state_archive,
)

if TYPE_CHECKING:
    from opencode_env.opencode.harness import OpenCodeHarness

RUNAWAY_POLL_SECONDS = 0.5
MAX_LOG_BYTES = 64 * 1024 * 1024
"""Cap of the log file that `log_dir` keeps per rollout."""


class OpenCodeSession(HarnessSession):
    """Drives OpenCode for one rollout; `turn` runs one segment, natively continuing OpenCode's session."""

    harness: "OpenCodeHarness"

    def __init__(
        self,
        harness: "OpenCodeHarness",
        ctx: ModelContext,
        trace: AnyTrace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
        programs: str,
    ) -> None:
        super().__init__(harness, ctx, trace, runtime, endpoint, secret, mcp_urls, data)
        self._programs = programs
        self._workdir = data.workdir or harness.config.agent_workdir
        self._fence = ProcessFence(runtime)
        self._state = ""
        self._written = False
        """Whether the next segment's prompt is in the state directory already."""
        self._log = RunLog()
        self._outcome: AgentOutcome | None = None
        self._agent_error = False
        self._exit_code: int | None = None
        self._segments = 0
        self._duration = 0.0

    async def prepare(self) -> None:
        """Write OpenCode's state directory, install skills, and draw the line before the agent.

        Raises:
            SandboxError: when the sandbox does not take them.
        """
        config = self.harness.config
        built = build_config(
            config,
            model=config.prompt_model or self.ctx.model,
            endpoint=self.endpoint,
            secret=self.secret,
            mcp_servers=self.mcp_urls,
            mcp_headers=config.resolve_mcp_headers(self.mcp_urls),
        )
        first = segment_prompt(self.data.prompt) if self.data.prompt is not None else None
        rendered = render_config(self.extend_config(built))
        archive = state_archive(rendered, self.system_append(), self.extra_files(), first)
        self._written = first is not None
        output = await self._prepare_state(archive)
        self._state, _, marked = output.removeprefix("state=").partition("\n")
        await self.harness.install_skills(self.runtime, f"{self._state}/{CONFIG_DIR}/skills")
        await self._fence.mark(marked)

    async def _prepare_state(self, archive: bytes) -> str:
        """Unpack the archive and mark the processes in one command; returns what that printed."""
        result = await self._run_prepare(archive)
        if result.exit_code == 3:  # the image was thought to hold OpenCode; ask the sandbox itself
            self._programs = await install(self.harness.config, self.runtime, trust_image=False)
            result = await self._run_prepare(archive)
        if result.exit_code != 0 or not result.stdout.startswith(f"state={STATE_BASE}"):
            raise SandboxError(f"preparing OpenCode's files failed ({result.exit_code}): {result.stderr[-800:]}")
        return result.stdout

    async def _run_prepare(self, archive: bytes) -> ProgramResult:
        content = archive_arguments(archive)
        if not content:
            path = f"/tmp/.opencode-{uuid.uuid4().hex}.tar"
            await self.runtime.write(path, archive)
            content = [f"@{path}"]
        script = program("prepare.sh") + self._fence.mark_script
        argv = ["sh", "-c", script, "prepare", STATE_BASE, self._workdir, self._programs, *content]
        return await self.runtime.run(argv, {})

    def extend_config(self, built: dict[str, Any]) -> dict[str, Any]:
        """OpenCode's configuration of this rollout; a subclass adds to it."""
        return built

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
        try:
            async with boundary(HarnessError, f"harness {self.harness.config.id!r}"):
                await self._segment(messages)
        except RolloutError:
            self._agent_error = True
            raise

    async def _segment(self, messages: Messages | None) -> None:
        prompt = messages if messages is not None else self.data.prompt
        if prompt is None:
            raise HarnessError("the task has no prompt and the user sent no message")
        first_call = len(self.trace.calls)
        self._written = self._written and messages is None
        args = await self._write_prompt(segment_prompt(prompt))
        self._written = False
        self._segments += 1
        self._exit_code, self._outcome = None, None
        started = time.monotonic()
        try:
            result = await self._run_watched(args, first_call)
        finally:
            self._duration += time.monotonic() - started
        self._exit_code = result.exit_code
        self._log = await self._read_log(result)
        self._outcome = outcome_of(
            SegmentRecord(result.exit_code, self.trace.calls[first_call:], self.trace.stop_condition, self._log)
        )
        self._check_plugin()
        if self._outcome is AgentOutcome.CONTEXT_WINDOW:
            self.trace.stop("max_total_tokens")
        elif self._outcome is AgentOutcome.CONTENT_FILTER:
            self.trace.stop("content_filter")

    async def _write_prompt(self, prompt: SegmentPrompt) -> list[str]:
        """Put the prompt's files in place, if they are not; returns OpenCode's arguments for this segment."""
        if not self._written:
            archive = f"{self._state}/segment.tar"
            await self.runtime.write(archive, segment_archive(prompt))
            script = 'tar -xf "$1/segment.tar" -C "$1" && rm -f "$1/segment.tar"'
            result = await self.runtime.run(["sh", "-c", script, "prompt", self._state], {})
            if result.exit_code != 0:
                raise SandboxError(f"writing the prompt failed ({result.exit_code}): {result.stderr[-500:]}")
        if self._segments and self._log.session_id is None:
            raise HarnessError("OpenCode's log names no session, so the conversation cannot be continued")
        args = [arg for picture in prompt.pictures for arg in ("--file", f"{self._state}/pictures/{picture.name}")]
        return [*(["--session", self._log.session_id] if self._log.session_id else []), *args]

    async def _run_watched(self, args: list[str], first_call: int) -> ProgramResult:
        """Run OpenCode, and end it when it has stopped making progress for good."""
        launch = ("sh", "-c", program("launch.sh"), "opencode", self._state, self._workdir, self._programs)
        argv = [*launch, str(EVENTS_TAIL_BYTES), SEPARATOR, *args]
        run = asyncio.ensure_future(self.runtime.run_program(argv, self.harness.config.resolved_env))
        watch = asyncio.ensure_future(self._runaway(first_call))
        try:
            await asyncio.wait({run, watch}, return_when=asyncio.FIRST_COMPLETED)
            if run.done():
                return run.result()
        finally:
            for task in (run, watch):
                task.cancel()
            await asyncio.gather(run, watch, return_exceptions=True)
        await self._fence.end()
        raise ProviderError(
            "OpenCode keeps calling the model without end: its streams name no finish reason, or every call fails "
            f"({len(self.trace.calls) - first_call} calls in this run); the model endpoint is broken"
        )

    async def _runaway(self, first_call: int) -> None:
        """Return once `is_runaway` says so."""
        while True:
            await asyncio.sleep(RUNAWAY_POLL_SECONDS)
            calls = self.trace.calls[first_call:]
            turns = [call.node for call in calls[-RUNAWAY_FAILURES:] if call.node is not None]
            if is_runaway(calls, [self._conversation(node) for node in turns]):
                return

    def _conversation(self, turn: int) -> int | None:
        """The first user message that the turn at this node goes back to; None when the turn called a tool."""
        nodes = self.trace.nodes
        if getattr(nodes[turn].message, "tool_calls", None):
            return None
        opening, node = turn, nodes[turn].parent
        while node is not None:
            opening = node if nodes[node].message.role == "user" else opening
            node = nodes[node].parent
        return opening

    async def _read_log(self, result: ProgramResult) -> RunLog:
        log = split_log(result.stdout) or await read_log(self.runtime, self._state)
        stderr = "\n".join(text for text in (log.stderr_tail, result.stderr) if text)
        return RunLog(log.session_id or self._log.session_id, log.error, log.events_tail, stderr)

    def _check_plugin(self) -> None:
        """OpenCode is silent about a plugin that does not load; without ours the prompt changes from day to day."""
        root = self.trace.nodes[0].message if self.trace.nodes else None
        if root is not None and root.role == "system" and "\n  Today's date: " in str(root.content):
            raise HarnessError("OpenCode did not load the opencode-env plugin: the system prompt still holds the date")

    async def close(self) -> None:
        """End the agent's processes and put this session's record and metrics on the trace. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if not self._state:
            return
        survivors: str | None = None
        try:
            await self._fence.end()
        except SandboxError as error:
            survivors = str(error)
        if self._exit_code is None:  # timed out or failed: the log of the segment was not read
            with contextlib.suppress(Exception):  # the sandbox may be gone; the record then has no log
                self._log = await read_log(self.runtime, self._state)
        self._record(survivors)
        await self._keep_log()

    def _record(self, survivors: str | None) -> None:
        config = self.harness.config
        record: dict[str, Any] = {
            "version": config.version,
            "session_id": self._log.session_id,
            "outcome": str(self._outcome) if self._outcome else None,
            "exit_code": self._exit_code,
            "segments": self._segments,
            "duration": round(self._duration, 3),
            "log_tail": self._log.tail(config.log_tail),
            **({"survivors": survivors} if survivors else {}),
        }
        self.trace.info[AGENT_RECORD] = record
        overflow = self._outcome is AgentOutcome.CONTEXT_WINDOW
        metrics = rollout_metrics(self.trace, agent_error=self._agent_error, context_overflow=overflow)
        self.trace.record_metrics(metrics)

    async def _keep_log(self) -> None:
        directory = self.harness.config.log_dir
        if directory is None:
            return
        path = directory / f"{self.trace.id}.log"
        try:
            parts = [
                await self.runtime.read(f"{self._state}/{name}", MAX_LOG_BYTES)
                for name in ("events.jsonl", "stderr.log")
            ]
            directory.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(path.write_bytes, b"".join(parts))
        except (SandboxError, OSError) as error:
            self.trace.info[AGENT_RECORD]["log_error"] = str(error)[:500]
        else:
            self.trace.info[AGENT_RECORD]["log_file"] = str(path)
