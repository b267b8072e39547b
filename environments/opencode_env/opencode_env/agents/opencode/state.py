"""What a rollout's OpenCode finds in its sandbox: one segment's prompt, and the state directory, which holds everything
that it reads and writes outside the work directory.

The directory is written in one piece, from one tar archive, anew for every further segment, which takes over nothing
that OpenCode could read as configuration or code. Its path is the same in every sandbox (`/tmp/opencode` unless
another agent of the same sandbox holds that), so that no path in a tool's output differs from run to run.

OpenCode takes a prompt as one user message. Texts of several user messages become its paragraphs; data-URL pictures
become attached files. A prior assistant or tool message has no place in it and is refused.
"""

import base64
import binascii
import io
import json
import tarfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from opencode_rubrics import run_checked
from opencode_runs.traces.record import HistoryRecord
from rollout_sandbox.programs import program_text
from rollout_sandbox.toolbox.files import archive_arguments
from verifiers.v1.clients import ModelContext
from verifiers.v1.errors import HarnessError
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.types import ImageUrlContentPart, Message, MessageContent, SystemMessage, TextContentPart, UserMessage

from opencode_env.cli_agent.interception import reads_images
from opencode_env.cli_agent.traces import AnyTrace, lineage

_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


@dataclass(frozen=True)
class Picture:
    """One image of the prompt as a file: name with the suffix OpenCode tells the type by, and bytes."""

    name: str
    data: bytes


@dataclass(frozen=True)
class SegmentPrompt:
    """The user's side of one segment."""

    text: str
    pictures: tuple[Picture, ...] = ()
    system: str = ""
    """Text of system messages in the prompt; belongs behind the agent's own system prompt."""


def segment_prompt(prompt: str | Sequence[Message]) -> SegmentPrompt:
    """Split a task's prompt, or the user's next messages, into what OpenCode takes.

    Raises:
        ValueError: for an assistant or tool message, a picture that is not a data URL, or no content at all.
    """
    texts: list[str] = [prompt] if isinstance(prompt, str) else []
    system: list[str] = []
    pictures: list[Picture] = []
    for message in [] if isinstance(prompt, str) else prompt:
        if isinstance(message, SystemMessage):
            system.extend(_texts(message.content))
        elif isinstance(message, UserMessage):
            texts.extend(_texts(message.content))
            pictures.extend(_pictures(message.content, len(pictures)))
        else:
            raise ValueError(
                f"OpenCode cannot be handed a prior {message.role!r} message: give it user and system messages "
                "only, and send further messages of the user through agent.interaction()"
            )
    text = "\n\n".join(texts)
    if not text.strip():
        raise ValueError("the prompt holds no text: OpenCode needs some beside any picture")
    return SegmentPrompt(text, tuple(pictures), "\n\n".join(system))


def _texts(content: MessageContent) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part.text for part in content if isinstance(part, TextContentPart)]


def _pictures(content: MessageContent, count: int) -> list[Picture]:
    if isinstance(content, str):
        return []
    urls = [part.image_url.url for part in content if isinstance(part, ImageUrlContentPart)]
    return [_picture(url, count + index) for index, url in enumerate(urls, 1)]


def _picture(url: str, number: int) -> Picture:
    head, comma, body = url.partition(",")
    mime = head.removeprefix("data:").removesuffix(";base64")
    if not comma or not head.startswith("data:") or mime not in _SUFFIXES:
        raise ValueError(
            f"picture {number} of the prompt is {url[:40]!r}…: OpenCode takes base64 data URLs of type "
            f"{', '.join(sorted(_SUFFIXES))}"
        )
    try:
        return Picture(f"image-{number}.{_SUFFIXES[mime]}", base64.b64decode(body, validate=True))
    except binascii.Error as error:
        raise ValueError(f"picture {number} of the prompt is not valid base64: {error}") from error


async def shows_images(chosen: bool | None, models: Sequence[ModelContext], first: SegmentPrompt | None) -> bool:
    """Whether the models of the agent and of its sub calls are shown images: as the option `images` has `chosen`; None
    = as a training client's renderer can, and else where the task's prompt, `first`, begins with a picture."""
    able = {await reads_images(ctx) for ctx in models}
    if False in able or chosen is not None:
        return bool(chosen) and False not in able
    return None not in able or bool(first and first.pictures)


STATE_BASE = "/tmp/opencode"
"""First choice of the directory; `prepare.sh` appends `-2`, `-3`, … while it is taken."""

CONFIG_DIR = "config/opencode"
"""OpenCode's global configuration directory, relative to the state directory."""

_DIRECTORIES = ("home", "tmp", f"{CONFIG_DIR}/node_modules", "data", "cache", "state", "managed", "pictures")

# OpenCode installs its plugin package into every configuration directory that does not look like this, and a
# configured plugin makes its start wait for that: 7 s with a registry, 73 s without a network.
_SEED_LOCK = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "1"}}}}


def program(name: str) -> str:
    """Text of one of the programs that run inside the sandbox (`opencode/programs/`)."""
    return program_text(name, "opencode_env.agents.opencode")


def begun_of(trace: AnyTrace, first: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Return what sessions of earlier segments began with, by the nodes of their first answers: the system prompt, part
    by part, and what the user said first, as parts of a message of OpenCode's. The trace holds it, as the agent could
    change a file that does; of those that were summarised it says itself where they begin."""
    history, begun = HistoryRecord.of(trace.info), {}
    known = {one.conversation: one.first for one in history.sections if one.summary is None}
    for session, node in {**first, **known}.items():
        said = [trace.nodes[here].message for here in lineage(trace.nodes, node)][::-1]
        system = [*takewhile(lambda one: one.role == "system", said)]
        user = said[len(system)]
        task = _parts(user.content) if isinstance(user, UserMessage) else []
        if system and node not in {one.node for one in history.summaries}:
            begun[session] = {"system": [one.content for one in system], "task": task}
    return begun


def _parts(content: MessageContent) -> list[dict[str, str]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    parts: list[dict[str, str]] = []
    for part in content:
        if isinstance(part, TextContentPart):
            parts.append({"type": "text", "text": part.text})
        else:
            mime = part.image_url.url.removeprefix("data:").partition(";")[0]
            name = f"image-{1 + sum(one['type'] == 'file' for one in parts)}.{_SUFFIXES.get(mime, 'bin')}"
            parts.append({"type": "file", "mime": mime, "filename": name, "url": part.image_url.url})
    return parts


def state_archive(
    config: str,
    system_append: str,
    extra: Mapping[str, str],
    prompt: SegmentPrompt | None = None,
    begun: Mapping[str, Mapping[str, Any]] | None = None,
) -> bytes:
    """The state directory of one segment, as a tar archive, with `opencode.json` and the segment's prompt, when it is
    known. The plugin puts `system_append` behind the system prompt; `extra` are further files by relative path, those
    under `bin/` executable and first on the PATH; `begun` is what sessions that the segment continues began with."""
    content = {
        f"{CONFIG_DIR}/opencode.json": config,
        f"{CONFIG_DIR}/package-lock.json": json.dumps(_SEED_LOCK, separators=(",", ":")),
        f"{CONFIG_DIR}/.gitignore": "*\n",
        "models.json": "{}",
        "tsconfig.json": "{}",  # its engine obeys the nearest, and one above could put other code in a module's place
        "plugin.js": program("plugin.js"),
        "plugin.json": json.dumps({"append": system_append}),
        "events.jsonl": "",
        "stderr.log": "",
        **({"begun.json": json.dumps(dict(begun)), "store.js": program("store.js")} if begun is not None else {}),
        **extra,
    }
    directories = (*_DIRECTORIES, "bin") if any(name.startswith("bin/") for name in content) else _DIRECTORIES
    encoded = {name: text.encode() for name, text in content.items()}
    return _tar({**encoded, **(segment_files(prompt) if prompt else {})}, directories)


def segment_files(prompt: SegmentPrompt) -> dict[str, bytes]:
    """The files of one segment's prompt: its text and its pictures."""
    pictures = {f"pictures/{picture.name}": picture.data for picture in prompt.pictures}
    return {"prompt.txt": prompt.text.encode(), **pictures}


def _tar(content: Mapping[str, bytes], directories: tuple[str, ...]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in directories:
            parts = name.split("/")
            for depth in range(1, len(parts) + 1):
                entry = tarfile.TarInfo("/".join(parts[:depth]))
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
        for name, data in content.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if name.startswith("bin/") else 0o644
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


NO_PROGRAM = 3
"""Exit code when there is no OpenCode."""


async def write_state(
    runtime: Runtime, archive: bytes, workdir: str, programs: str, then: str = "", again: tuple[str, str] | None = None
) -> ProgramResult:
    """Unpack the archive into a new directory, whose path is printed, and run the script `then` behind that; the exit
    code may be `NO_PROGRAM`. With `again`, a state directory and its session, it is put in that one's place, which
    keeps what belongs to the conversation and to the agent. `programs` is the directory of OpenCode inside.

    Raises:
        HarnessError: with `again`, in a sandbox that lives: the agent can have seen to that.
    """
    content = archive_arguments(archive)
    if not content:
        path = f"/tmp/.opencode-{uuid.uuid4().hex}.tar"
        await runtime.write(path, archive)
        content = [f"@{path}"]
    state, session = again or (STATE_BASE, "")
    argv = ["sh", "-c", program("prepare.sh") + then, "prepare", state, session, workdir, programs, *content]
    if again is None:
        return await run_checked(runtime, argv, "preparing OpenCode's files failed", accepted=(0, NO_PROGRAM))
    return await run_checked(runtime, argv, "preparing OpenCode's files again failed", error=HarnessError)
