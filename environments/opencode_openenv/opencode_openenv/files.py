"""The files that the agent left in the work directory, as text.

Invariant: whatever stands there (links, pipes, endless or binary files, names with line breaks), the read is bounded in
time and size, follows no link, and fails no rollout.
"""

import base64
import binascii
from dataclasses import dataclass, field

import verifiers.v1 as vf
from agent_sandbox.programs import program_argv
from agent_sandbox.toolbox.checked_run import run_for

_BELOW_BYTES = 64 << 10
_MOST = 32
_CHARACTERS = 8000
_SECONDS = 30.0


@dataclass(frozen=True)
class LeftFiles:
    """The first files of a directory to depth 2."""

    texts: dict[str, str] = field(default_factory=dict)
    """The first 8,000 characters by absolute path."""
    others: list[str] = field(default_factory=list)
    """Paths of those that are not text."""


async def left_files(runtime: vf.Runtime, directory: str) -> LeftFiles:
    """The files below `directory`; none where they cannot be read in time.

    Raises:
        SandboxError: the sandbox is gone.
    """
    argv = program_argv(
        "read_files.sh", directory, str(_BELOW_BYTES), str(_MOST), str(_CHARACTERS * 4), owner="opencode_openenv"
    )
    result = await run_for(runtime, argv, _SECONDS, f"the files of {directory} cannot be read")
    found = LeftFiles()
    for line in result.stdout.splitlines() if result.exit_code == 0 else ():
        path, _, content = line.partition(" ")
        try:
            name, data = base64.b64decode(path, validate=True).decode(), base64.b64decode(content, validate=True)
        except (binascii.Error, UnicodeDecodeError):
            continue  # a name that is not text cannot be told
        text = _text(data)
        if text is None:
            found.others.append(name)
        else:
            found.texts[name] = text
    return found


def _text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()[:_CHARACTERS]
    except UnicodeDecodeError as error:
        # The head may end within a character.
        return data[: error.start].decode()[:_CHARACTERS] if error.start > len(data) - 4 else None
