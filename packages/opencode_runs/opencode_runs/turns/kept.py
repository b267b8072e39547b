"""The format of a kept turn: a folder that holds what a rollout was when a main call waited for its answer.

    DIR/<rollout>/lock              held by the process that plays the rollout
    DIR/<rollout>/ended             written when the rollout has ended by itself: scored, or with its agent's own error
    DIR/<rollout>/<turn, 4 digits>/
        turn.json                    the manifest, a `KeptTurn`; written last, before the folder gets its name
        row.json                     the task's data, as the taskset made it
        trace.msgpack                the trace so far at full precision: nodes, model calls, and what goes with them
        answer.msgpack               the stream that answered the call, for a resumed rollout; not there before it came
        files/index.gz               what the agent's directories held: one JSON list a line, sorted by path
        files/<number>               contents that the index names; equal to those of other kept turns by hard link

An agent has filled it. Every name in it that the host opens was made by the host; paths of the agent are
text inside `files/index.gz`, and nothing is executed or unpacked outside a sandbox. A folder whose name begins with a
dot is not whole and is never read: on a cluster one for each try, in which what it is still writing lies.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, JsonValue, ValidationError

from opencode_runs.errors import BadInputError
from opencode_runs.traces.record import Origin

MANIFEST, ROW, TRACE, ANSWER_FILE, FILES = "turn.json", "row.json", "trace.msgpack", "answer.msgpack", "files"
"""Names in the folder of a kept turn."""
LOCK, ENDED = "lock", "ended"
"""Names in the folder of a rollout."""
MAX_MANIFEST_BYTES = 1 << 20


class RolloutFacts(BaseModel, frozen=True):
    """Holds what the manifests of all turns of a rollout say alike."""

    format: Literal[1] = 1
    task_key: str
    task_hash: str
    env: str
    """Id of the environment that kept it."""
    versions: dict[str, str]
    """Versions of the `agent`, `verifiers` and `opencode-env`."""
    model: str
    sampling: dict[str, JsonValue]
    runtime: str
    """Type of the sandbox that it was kept in, and can be restored in."""
    settings: str
    """Hash of the seat's settings that decide how the rollout goes on; only equal ones can be resumed."""


class KeptTurn(RolloutFacts):
    digest: str
    """SHA-256 of the main request that waited, as hexadecimal digits."""
    turn: int = Field(ge=1)
    """Which main call waited, from 1; so many less one were answered before it."""
    trace_id: str
    session_id: str | None
    """OpenCode's session."""
    seconds: float
    """Seconds that the agent had taken, from its start to this call."""
    held_seconds: float
    """Seconds for which everything inside was held still."""
    file_bytes: int
    """Bytes of all contents in `files/`, those shared with other kept turns included."""
    origin: Origin | None = None
    """The kept turn that its own rollout was continued from."""
    unrestorable: str | None = None
    """Why it cannot be restored; such a turn is not offered."""
    place: Path = Field(Path(), exclude=True)
    """Its folder, once read."""

    @property
    def row(self) -> dict[str, Any]:
        """The task's data.

        Raises:
            BadInputError: it cannot be read.
        """
        try:
            data = json.loads((self.place / ROW).read_bytes())
        except (OSError, ValueError) as error:
            raise BadInputError(f'kept turn "{self.place}": {ROW} cannot be read: {error}') from None
        if not isinstance(data, dict):
            raise BadInputError(f'kept turn "{self.place}": {ROW} holds no object')
        return data

    def write(self, folder: Path) -> None:
        """Write the manifest into a folder that holds everything else already, and let it reach the disk."""
        with (folder / MANIFEST).open("xb") as file:
            file.write(self.model_dump_json(indent=1).encode())
            file.flush()
            os.fsync(file.fileno())


class TurnRow(BaseModel):
    """A line of a `.jsonl` dataset that names one kept turn."""

    kept_turn: str
    """Its folder."""
    digest: str
    """Digest of its request; a folder with another one is refused."""


def read_turn(place: Path) -> KeptTurn:
    """One kept turn by its folder.

    Raises:
        BadInputError: there is none, or it is of another format.
    """
    try:
        with (place / MANIFEST).open("rb") as file:
            content = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise BadInputError(f'"{place}" is not a kept turn: {error.strerror}') from None
    if len(content) > MAX_MANIFEST_BYTES:
        raise BadInputError(f'"{place / MANIFEST}" is over {MAX_MANIFEST_BYTES} bytes')
    try:
        found = KeptTurn.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BadInputError(f'"{place / MANIFEST}" is not a manifest of a kept turn: {where}: {first["msg"]}') from None
    return found.model_copy(update={"place": place})


def kept_turns(folder: Path) -> Iterator[KeptTurn]:
    """The kept turns of a folder of rollouts, of one rollout, or the one turn; by rollout and turn.

    Raises:
        BadInputError: one of them cannot be read.
    """
    return map(read_turn, turn_places(folder))


def turn_places(folder: Path) -> list[Path]:
    """The folders of the kept turns of a folder of rollouts, of one rollout, or the one turn; by rollout and turn."""
    if (folder / MANIFEST).is_file():
        return [folder]
    first = _folders(folder)
    found = [*first, *(inner for one in first for inner in _folders(one))]
    return sorted(one for one in found if (one / MANIFEST).is_file())


def _folders(folder: Path) -> list[Path]:
    """Those in it whose names begin with no dot; none once it is gone, as another process may remove it meanwhile."""
    with suppress(OSError), os.scandir(folder) as found:
        return [folder / one.name for one in found if not one.name.startswith(".") and one.is_dir()]
    return []
