"""What is made of a run besides the page: trajectories in ATIF, the form that Harbor reads, one rollout as Markdown,
and one file for a bug report.

ATIF has a trajectory for each branch, as a trajectory is a line: https://harborframework.com/docs/trajectory-format
"""

import json
import math
import platform
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution, distributions, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from opencode_runs.console_command import replacing, say
from opencode_runs.errors import BadInputError, BrokenGraphError, NothingUsableError
from opencode_runs.report.masking import Masker
from opencode_runs.report.packing import ValueShortener, as_json
from opencode_runs.report.writing import write_page
from opencode_runs.traces.reading import Run, TraceReader, find_runs, lines_of, saved_config
from opencode_runs.traces.record import CallRecord, EpisodeRecord, TraceRecord
from opencode_runs.trainable.samples import branch_paths

SOURCES = {"system": "system", "user": "user", "assistant": "agent", "developer": "system"}
FUNCTION = ("name", "description", "parameters")
Step = dict[str, Any]


def export_atif(paths: list[Path], folder: Path) -> int:
    """Write each trace's trajectories as files of `folder`, named by the trace's id and branch; how many they are.

    Raises:
        BadInputError: a path is not a run, or the folder cannot be written to.
        NothingUsableError: the runs hold no conversation.
    """
    written = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for episode, trace in _traces(find_runs(paths)):
            for found in _trajectories(episode, trace):
                text = Masker().json(as_json(found))
                name = re.sub(r"[^\w.-]", "_", str(found["trajectory_id"]))[-120:]
                (folder / f"{name}.json").write_bytes(text + b"\n")
                written += 1
    except OSError as error:
        raise BadInputError(f'cannot write to "{folder}": {error.strerror or error}') from None
    if not written:
        raise NothingUsableError("the runs hold no conversation")
    return written


def print_markdown(paths: list[Path], wanted: str) -> None:
    """Print the rollout whose trace's or episode's id begins with `wanted`, or the first one of the task of that name.

    Raises:
        NothingUsableError: no rollout has that id or task.
    """
    found, ids = None, []
    for episode, trace in _traces(find_runs(paths)):
        if wanted and (trace.id.startswith(wanted) or episode.id.startswith(wanted)):
            found = episode, trace
            break
        if found is None and wanted == episode.called:
            found = episode, trace
        ids.append(f"{trace.id[:8]} ({episode.task})")
    if found is None:
        told = ", ".join(ids[:10]) + (", …" if len(ids) > 10 else "")
        raise NothingUsableError(f"no rollout has an id that begins with {wanted!r}, or that task; there are {told}")
    say(_markdown(*found).removesuffix("\n"))


def _markdown(episode: EpisodeRecord, trace: TraceRecord) -> str:
    masker = Masker()

    def cut(text: str) -> str:
        return str(ValueShortener(masker, 3000).cut(text))

    rewards = ", ".join(
        f"{name} {reward.score:g}" for name, reward in trace.rewards.items() if reward and reward.score is not None
    )
    facts = {
        "reward": "none" if trace.reward is None else f"{trace.reward:g} ({rewards})", "stop": trace.stop_condition,
        "model": trace.model, "turns": trace.turns, "length": trace.num_total_tokens,
        "errors": ", ".join(error.type for error in trace.errors), "trace": trace.id,
    }  # fmt: skip
    parts = [f"# {cut(episode.called)}"]
    parts.append("\n".join(f"- {name}: {value}" for name, value in facts.items() if value not in (None, "")))
    for node in trace.nodes:
        message = node.message if isinstance(node.message, dict) else {}
        role, text = message.get("role", "unknown"), cut(_plain_text(message.get("content")))
        if role == "system":
            continue
        parts.append(f"### {role}{' ' + str(message['name']) if message.get('name') else ''}")
        if text:
            parts.append(_fenced(text) if role == "tool" else text)
        calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
        parts += [f"**{call.get('name')}**\n{_fenced(cut(_plain_text(call.get('arguments'))))}" for call in calls]
    verified = trace.info.get("verify") if isinstance(trace.info, dict) else None
    for record in verified if isinstance(verified, list) else ():
        if isinstance(record, dict):
            ended = "timed out" if record.get("timed_out") else f"exit code {record.get('exit_code')}"
            texts = [str(record.get(name) or "").strip("\n") for name in ("command", "stdout", "stderr")]
            parts += [f"### verify command: {ended}", *(_fenced(cut(text)) for text in texts if text)]
    return masker.text("\n\n".join(parts)) + "\n"


def _fenced(text: str) -> str:
    """Text in a fence that it cannot close."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", text)), 3)
    return f"{fence}\n{text}\n{fence}"


def _traces(runs: Sequence[Run]) -> Iterator[tuple[EpisodeRecord, TraceRecord]]:
    for _, episode in TraceReader(lines_of).episodes([run.file for run in runs]):
        for trace in episode.traces:
            yield episode, trace


def _trajectories(episode: EpisodeRecord, trace: TraceRecord) -> Iterator[dict[str, Any]]:
    """The trajectories of a trace, one for each branch; none for a trace without messages or with a broken graph.

    What an earlier branch holds already is marked as copied context in a later one, so that nothing trains twice.
    """
    try:
        paths = branch_paths(trace)
    except BrokenGraphError:
        return
    told: set[int] = set()
    for branch, path in enumerate(paths):
        steps = _steps(trace, path, frozenset(told))
        told.update(path)
        usages = [call.usage for call in trace.calls if call.node in path and call.usage is not None]
        yield _without_none(
            {
                "schema_version": "ATIF-v1.8",
                "session_id": episode.id,
                "trajectory_id": f"{trace.id or episode.id}.{branch}",
                "agent": _agent(trace),
                "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
                "final_metrics": {
                    "total_prompt_tokens": sum(usage.input_tokens for usage in usages),
                    "total_completion_tokens": sum(usage.completion_tokens for usage in usages),
                    "total_cached_tokens": sum(usage.cached_input_tokens or 0 for usage in usages),
                    "total_steps": len(steps),
                },
                "extra": {
                    "env": episode.env,
                    "task": episode.task_id or episode.task_name or episode.task,
                    "seat": trace.seat,
                    "reward": trace.reward,
                    "rewards": {name: reward and reward.model_dump() for name, reward in trace.rewards.items()},
                    "stop_condition": trace.stop_condition,
                    "errors": [error.type for error in trace.errors],
                    "branch": branch,
                    "branches": len(paths),
                },
            }
        )


def _agent(trace: TraceRecord) -> dict[str, Any]:
    offered = trace.tools if isinstance(trace.tools, list) else []
    tools = [tool for tool in offered if isinstance(tool, dict)]
    return {
        "name": str(trace.harness or trace.seat),
        "version": trace.agent_version or "unknown",
        "model_name": trace.model,
        "tool_definitions": [
            tool
            if "function" in tool
            else {"type": "function", "function": {n: tool[n] for n in FUNCTION if n in tool}}
            for tool in tools
        ]
        or None,
    }


def _steps(trace: TraceRecord, path: tuple[int, ...], told: frozenset[int]) -> list[Step]:
    steps: list[Step] = []
    calls = {call.node: call for call in trace.calls if call.node is not None}
    context: list[int] = []
    for number in path:
        node = trace.nodes[number]
        message = node.message if isinstance(node.message, dict) else {"role": "user", "content": node.message}
        if message.get("role") == "tool" and steps:
            asked = {call["tool_call_id"] for call in steps[-1].get("tool_calls") or ()}
            call = message.get("tool_call_id")
            result = {"source_call_id": call if call in asked else None, "content": _plain_text(message.get("content"))}
            steps[-1].setdefault("observation", {"results": []})["results"].append(result)
        else:
            at = node.timestamp
            step: Step = {
                "timestamp": datetime.fromtimestamp(at, UTC).isoformat() if at and 0 < at < 1e11 else None,
                "source": SOURCES.get(str(message.get("role")), "user"),
                "message": _plain_text(message.get("content")),
                "is_copied_context": True if number in told else None,
            }
            if step["source"] == "agent":
                sampled = [token for token, own in zip(node.token_ids, node.mask, strict=False) if own]
                head = len(node.token_ids) - len(sampled)
                metrics = _metrics(calls.get(number), context + node.token_ids[:head], sampled, node.logprobs)
                step |= _said(message, number) | {"metrics": metrics, "llm_call_count": int(node.sampled)}
                if not node.sampled:
                    step |= {"metrics": None, "reasoning_content": None}
            steps.append(step)
        context += node.token_ids
    return steps


def _said(message: dict[str, Any], number: int) -> Step:
    reasoning = message.get("reasoning_content")
    calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
    return {
        "reasoning_content": reasoning if isinstance(reasoning, str) else None,
        "tool_calls": [
            {
                "tool_call_id": str(call.get("id") or f"call-{number}-{place}"),
                "function_name": str(call.get("name")),
                **_arguments(call.get("arguments")),
            }
            for place, call in enumerate(calls)
        ]
        or None,
    }


def _arguments(given: Any) -> dict[str, Any]:
    """Arguments are an object; what the model wrote instead stands beside them."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        value = None
    return {"arguments": value} if isinstance(value, dict) else {"arguments": {}, "extra": {"raw_arguments": given}}


def _metrics(call: CallRecord | None, context: list[int], sampled: list[int], logprobs: list[float]) -> Any:
    found: dict[str, Any] = {}
    if call is not None and call.usage is not None:
        found = {
            "prompt_tokens": call.usage.input_tokens,
            "completion_tokens": call.usage.completion_tokens,
            "cached_tokens": call.usage.cached_input_tokens,
        }
    if sampled:
        found |= {"prompt_token_ids": context, "completion_token_ids": sampled}
        if len(logprobs) == len(sampled) and all(map(math.isfinite, logprobs)):
            found["logprobs"] = logprobs
    return found or None


def _plain_text(content: Any) -> str:
    """A message's text; of parts that are not text, their kind."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else json.dumps(content, ensure_ascii=False)
    parts = [part if isinstance(part, dict) else {"text": str(part)} for part in content]
    return "\n".join(str(part["text"]) if "text" in part else f"[{part.get('type', 'part')}]" for part in parts)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(one) for name, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value


_MAX_LOG = 2 << 20
"""Bytes of each log that are taken, from its end."""
_PACKAGES = ("verifiers", "renderers", "openai", "datasets", "aiohttp", "pydantic", "prime-sandboxes")


def write_bundle(run: Run, output: Path, *, max_mb: float) -> Counter[str]:
    """Write a zip file of one run; returns how often each masking rule was used.

    Raises:
        BadInputError: the run cannot be read as traces of this schema, or the file cannot be written.
    """
    masker = Masker()
    with tempfile.TemporaryDirectory() as scratch, replacing([output]) as (place,):
        page = Path(scratch) / "report.html"
        masked = write_page([run], page, max_mb=max_mb).masked
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as bundle:
            bundle.write(page, "report.html")
            bundle.writestr("versions.json", json.dumps(_versions() | {"run": _played(run)}, indent=1))
            if (config := saved_config(run.file.path)) is not None:
                bundle.writestr("configuration.json", masker.text(config.read_text(errors="replace")))
            for log in sorted((run.file.path.parent / "logs").glob("attempt_*/*.log")):
                with log.open("rb") as file:
                    file.seek(max(0, log.stat().st_size - _MAX_LOG))
                    end = file.read().decode(errors="replace")
                bundle.writestr(f"logs/{log.parent.name}-{log.name}", masker.text(end))
    return masked + masker.counts


def _played(run: Run) -> dict[str, object]:
    """Versions that the run itself names: of verifiers, and of its agent as configured and as it ran."""
    for _, trace in _traces([run]):
        pinned = run.file.settings.agent_version
        return {"verifiers": trace.verifiers, "agent": trace.harness, "pinned": pinned, "ran": trace.agent_version}
    return {}


def _versions() -> dict[str, object]:
    """Return the versions of this machine, not of the one that played, where those differ."""
    origin = json.loads(distribution("opencode-runs").read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {}).get("commit_id")
    if not commit and (checkout := url2pathname(urlsplit(origin.get("url", "")).path)):
        commit = _output_of("git", "-C", checkout, "describe", "--always", "--dirty", "--abbrev=40")
    found: dict[str, object] = {"python": platform.python_version(), "system": platform.platform(), "commit": commit}
    ours = {one.name for one in distributions() if one.name.startswith(("opencode-", "rollout-sandbox", "mathverdict"))}
    for name in (*sorted(ours), *_PACKAGES):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    for program in ("bwrap", "podman", "docker"):
        found[program] = _output_of(program, "--version")
    return found


def _output_of(program: str, *arguments: str) -> str | None:
    path = shutil.which(program)
    done = path and subprocess.run([path, *arguments], capture_output=True, text=True, timeout=20, check=False)
    return (done.stdout.strip() or None) if done else None
