"""The rollout's state directory inside the sandbox: everything OpenCode reads and writes outside the work directory,
and how it is written there.

Invariant: it is written in one piece, from one tar archive, anew for every further segment, which takes over nothing
that OpenCode could read as configuration or code; its path is the same in every sandbox (`/tmp/opencode`
unless another agent of the same sandbox holds that), so that no path in a tool's output differs from run to run.
"""

import io
import json
import tarfile
import uuid
from collections.abc import Mapping, Sequence
from itertools import takewhile

from opencode_rubrics import run_checked
from rollout_sandbox.programs import program_text
from rollout_sandbox.toolbox.archives import archive_arguments
from verifiers.v1.errors import HarnessError
from verifiers.v1.runtimes import ProgramResult, Runtime

from opencode_env.agents.opencode.prompt import SegmentPrompt
from opencode_env.cli_agent.traces import AnyTrace

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


def systems_of(trace: AnyTrace, session: str) -> dict[str, list[str]]:
    """The system prompt, part by part, with which a session of earlier segments began; the trace holds it, as the agent
    could change a file that does."""
    roots = takewhile(lambda node: node.message.role == "system", trace.nodes)
    parts = [node.message.content for node in roots if isinstance(node.message.content, str)]
    return {session: parts} if parts else {}


def state_archive(
    config: str,
    system_append: str,
    extra: Mapping[str, str],
    prompt: SegmentPrompt | None = None,
    systems: Mapping[str, Sequence[str]] | None = None,
) -> bytes:
    """The state directory of one segment, as a tar archive, with `opencode.json` and the segment's prompt, when it is
    known. The plugin puts `system_append` behind the system prompt; `extra` are further files by relative path, those
    under `bin/` executable and first on the PATH; `systems` the system prompts of sessions that the segment continues,
    part by part."""
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
        **({"system.json": json.dumps(dict(systems)), "store.js": program("store.js")} if systems is not None else {}),
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
