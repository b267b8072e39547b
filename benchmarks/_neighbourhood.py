"""Honest rollouts beside a rollout that attacks its neighbours, or beside an honest busy one, in one environment."""

import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._hosted import AnyEpisode, Hosted, hosted_rows
from benchmarks.attack.__main__ import ATTACKS

BUSY, BOMBS = "busy", "bombs"
ROWS = (*(name for name in ATTACKS if name != BUSY), BOMBS)
"""The attacks: those of the program, and answers that take the math workers as long as they may."""
ATTACKERS = {BOMBS: 3}
"""How many rollouts an attack takes where one does not do: a bomb is one answer."""
RAMP = 0.5
"""Seconds that an attack runs before the neighbours start."""
STEADY, MOST = 2.5, 10.0
"""They start when the attack's connections have not grown in number for so many seconds, or after so many. A full queue
of connections is tried again after one second, then after two."""
PATIENCE = 60.0

_BOMB = r"(1/3)!+10^{-2000}\sqrt{2}"
_PROGRAM = Path(__file__).with_name("attack")
_REPORT = re.compile(r"^ATTACK (\{.*\})$", re.MULTILINE)


def scripts(token: str) -> dict[str, Any]:
    """What the scripted model plays; `token` tells the attacks' processes from all others of this machine."""
    place = f"mkdir -p /tmp/{token}/benchmarks/attack && cd /tmp/{token} && touch benchmarks/__init__.py\n"
    for source in sorted(_PROGRAM.glob("*.py")):
        place += f"cat >benchmarks/attack/{source.name} <<'END_OF_FILE'\n{source.read_text()}END_OF_FILE\n"
    attacks = [
        {"match": f"attack {name}.", "steps": [_bash(f"{place}{_command_of(name, token)}; true"), {"text": "done"}]}
        for name in ATTACKS
    ]
    bombs = {"match": f"attack {BOMBS}.", "steps": [{"text": rf"\boxed{{{_BOMB}}}"}]}
    honest = {"steps": [_bash("seq 1 41 >/app/numbers; wc -l /app/numbers"), {"text": r"\boxed{42}"}]}
    return {"scripts": [*attacks, bombs, honest]}


def _bash(command: str) -> dict[str, Any]:
    arguments = {"command": command, "description": "work", "timeout": 600_000}
    return {"tool_calls": [{"name": "bash", "arguments": arguments}]}


def _command_of(attack: str, token: str) -> str:
    return f"python3 -m benchmarks.attack {attack} {token}"


@dataclass
class Played:
    """What became of some neighbours of one attack."""

    wall: float
    """Seconds from their start to the end of the last; `inf`: some were not over in time."""
    errors: list[str]
    """What went wrong with them, or stayed behind."""
    waited: float
    """The longest scoring of one of them (s)."""
    descriptors: int
    """The most that the environment's process had open."""
    seen: int
    """The most that the attack held, as seen from outside while it ran."""
    reports: list[dict[str, Any]]
    """What each attacking rollout says that it did, or how it ended."""

    def held(self, attack: str) -> float:
        """The most that the attack held at once, told by its victims where it cannot know."""
        of_victims = {"connections": self.descriptors, BOMBS: self.waited}
        return of_victims.get(attack, float(max([self.seen, *(report.get("peak", 0) for report in self.reports)])))


@asynccontextmanager
async def neighbourhood(base_url: str, token: str, fields: Mapping[str, Any]) -> AsyncIterator["Neighbourhood"]:
    """An environment with these `--env.*` options, warmed up."""
    names = [BUSY, *ROWS]
    rows = [{"id": "honest", "question": "How many numbers are there, and one more?", "answer": "42"}]
    rows += [{"id": name, "question": f"This is the attack {name}.", "answer": "5"} for name in names]
    taskset = {"task": {"rubric": {"type": "hybrid-math"}}}
    async with hosted_rows(base_url, rows, {**fields, "taskset": taskset}) as hosted:
        here = Neighbourhood(hosted, token, {name: 1 + index for index, name in enumerate(names)})
        first = await hosted.play(0)
        if not first.ok:
            raise SystemExit(f"the first rollout failed: {_problem(first)}")
        yield here


class Neighbourhood:
    """One serving environment, in which an attack or a busy rollout runs beside honest ones."""

    def __init__(self, hosted: Hosted, token: str, rows: Mapping[str, int]) -> None:
        self._hosted = hosted
        self._token = token
        self._rows = rows
        self._seen: list[int] = []

    async def beside(self, attack: str, rollouts: int, limit: float = 120.0) -> Played:
        """Play so many honest rollouts at once while `attack` is under way, for at most `limit` seconds."""
        over = asyncio.Event()
        count = ATTACKERS.get(attack, 1)
        reports: list[dict[str, Any]] = []
        attacking = asyncio.gather(*(self._attack(attack, over, reports) for _ in range(count)))
        await self._under_way(attack, attacking)
        started = time.perf_counter()
        playing = [asyncio.ensure_future(self._hosted.play(0)) for _ in range(rollouts)]
        late, open_files, seen = await self._watch(attack, playing, limit)
        wall = float("inf") if late else time.perf_counter() - started
        for one in late:
            one.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        over.set()
        await self._end(attack, attacking, reports)
        episodes = [one.result() for one in playing if one not in late]
        errors = [_problem(episode) for episode in episodes if not _solved(episode)]
        errors += [f"{len(late)} not over after {limit:g} s"] if late else []
        left = self._pids(attack)
        errors += [f"{len(left)} processes of the attack left"] if left else []
        waited = max((one.timing.scoring.duration for episode in episodes for one in episode.traces[:1]), default=0.0)
        return Played(wall, errors, waited, open_files, seen, reports)

    async def _attack(self, attack: str, over: asyncio.Event, reports: list[dict[str, Any]]) -> None:
        """Attack with one rollout after the other until it is over: a protection may have ended the one before."""
        while not over.is_set():
            reports.append(_report(await self._hosted.play(self._rows[attack])))
            if attack == BOMBS:
                break

    async def _under_way(self, attack: str, attacking: "asyncio.Future[Any]") -> None:
        """Wait until the attack has begun."""
        deadline = time.monotonic() + PATIENCE
        while not (_a_worker_is_busy() if attack == BOMBS else self._pids(attack)):
            if attacking.done() or time.monotonic() > deadline:
                raise SystemExit(f"the attack {attack} did not run: {attacking}")
            await asyncio.sleep(0.05)
        await asyncio.sleep(RAMP)
        if attack == "connections":
            await self._all_taken(attack)

    async def _all_taken(self, attack: str) -> None:
        """Wait until the attack holds as many as it gets."""
        grown = began = time.monotonic()
        most = 0
        while time.monotonic() < began + MOST and not (most and time.monotonic() > grown + STEADY):
            if (held := max(map(_held, self._pids(attack)), default=0)) > most:
                most, grown = held, time.monotonic()
            await asyncio.sleep(0.05)

    async def _end(self, attack: str, attacking: "asyncio.Future[Any]", reports: list[dict[str, Any]]) -> None:
        """Tell the attack to end, as often as it takes."""
        deadline = time.monotonic() + PATIENCE
        while not attacking.done() and time.monotonic() < deadline:
            pids = {*self._pids(attack)}
            for pid in pids:
                if _parent(pid) not in pids:
                    _signal(pid)
            await asyncio.wait([attacking], timeout=0.3)
        if not attacking.done():
            attacking.cancel()
            reports.append({"error": f"not over {PATIENCE:g} s after it was told to end"})
        await asyncio.gather(attacking, return_exceptions=True)

    async def _watch(
        self, attack: str, playing: "list[asyncio.Task[AnyEpisode]]", limit: float
    ) -> "tuple[set[asyncio.Task[AnyEpisode]], int, int]":
        """Those that are not over in time (s), the most descriptors of this process, and the most that was held."""
        deadline, descriptors, held = time.monotonic() + limit, 0, 0
        late = set(playing)
        pids: list[int] = []
        while late and time.monotonic() < deadline:
            descriptors = max(descriptors, _open_files())
            if not any(map(_held, pids)):  # looked for again only when it is gone: looking costs the neighbours time
                pids = self._pids(attack)[:1]
            held = max([held, *map(_held, pids)])
            _, late = await asyncio.wait(late, timeout=0.5)
        return late, descriptors, held

    def _pids(self, attack: str) -> list[int]:
        """The processes of the attack's program; those seen last where this process has no descriptor to look with."""
        words = _command_of(attack, self._token).split()[1:]
        with contextlib.suppress(OSError):
            self._seen = [pid for pid in _all_pids() if _command(pid)[1:5] == words]
        return self._seen


def _held(pid: int) -> int:
    """What a process of an attack says in its name."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return 0
    return int(name.removeprefix("held"), 16) if re.fullmatch("held[0-9a-f]+", name) else 0


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:  # none is left to look with
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _solved(episode: AnyEpisode) -> bool:
    return episode.ok and episode.traces[0].reward == 1.0 and episode.traces[0].num_turns == 2


def _problem(episode: AnyEpisode) -> str:
    trace = episode.traces[0] if episode.traces else None
    errors = [*episode.errors, *(trace.errors if trace else [])]
    if errors:
        return f"{errors[0].type}: {errors[0].message}"[:120]
    if trace is None:
        return "no trace"
    return f"reward {trace.reward} after {trace.num_turns} turns, {trace.stop_condition}"


def _report(episode: AnyEpisode) -> dict[str, Any]:
    """The last report of the attack's program, or what else there is to say about its rollout."""
    for trace in episode.traces:
        said = "\n".join(str(message.content) for message in trace.messages if message.role == "tool")
        found = _REPORT.findall(said)
        if found:
            report: dict[str, Any] = json.loads(found[-1])
            return report
        if "math" in trace.info:
            return {"peak": trace.timing.scoring.duration, "error": trace.info["math"]["reason"]}
    kills = [trace.info.get("agent", {}).get("limit_kills") for trace in episode.traces]
    return {"error": _problem(episode), "limit_kills": kills}


def _all_pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _parent(pid: int) -> int:
    return int((_stat(pid) or ["", "0"])[1])


def _signal(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def _a_worker_is_busy() -> bool:
    """Whether a math worker of this process has computed for longer than an honest answer takes."""
    for pid in _all_pids():
        is_worker = "verdict_programs.on_host" in "".join(_command(pid)) and _parent(_parent(pid)) == os.getpid()
        ticks = sum(map(int, _stat(pid)[11:13])) if is_worker else 0
        if ticks / os.sysconf("SC_CLK_TCK") > 0.5:
            return True
    return False
