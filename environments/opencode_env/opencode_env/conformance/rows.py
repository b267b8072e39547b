"""What the agent's model says in each row of the suite, and what happens to the sandbox around it.

One row is one promise or a few; the tests read what became of it by its name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opencode_env.conformance.dialect import Dialect
from opencode_env.conformance.taskset import COMMAND_MARK
from opencode_env.scripted_model import ChatRequest, Fault, FaultKind, Reply, Usage

RIGHT, WRONG = "the-right-answer", "a-wrong-answer"
"""What the scripted model says when it is right, and when it is wrong."""
MAX_TURNS = 6
"""The seat's limit, reached by the row `turns` only."""
MAX_TOTAL_TOKENS = 5_000_000
"""The seat's budget, reached by the row `budget` only."""
LIMIT_SECONDS = 60.0
"""Time limit of the row whose agent runs a command without end: enough to come that far on a busy machine."""
SILENT_SECONDS = 45.0
"""Time limit of the row whose model never answers: enough to ask it on a busy machine."""
SERVICE, VICTIM = "sleep 59841", "sleep 59842"
"""Processes that the setup of a row leaves running; the sandbox of the second one is killed."""


@dataclass(frozen=True)
class Move:
    """One reply of the model: a shell command for the agent to run, or a text that ends its work."""

    command: str = ""
    text: str = ""
    faults: tuple[Fault, ...] = ()
    usage: Usage | None = None


@dataclass(frozen=True)
class Row:
    """A task and the model's part in it; `fields` are those of the taskset's `ConformanceData`."""

    name: str
    moves: Sequence[Move] = (Move(text=RIGHT),)
    fields: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    """The agent's time limit; None takes the suite's, which a sound agent never meets."""

    @property
    def mark(self) -> str:
        """The words in the prompt by which its requests are told."""
        return f"row {self.name}:"

    def data(self, seconds: float) -> dict[str, Any]:
        timeout = {"agent": self.seconds or seconds, "setup": 90.0, "finalize": 90.0, "scoring": 90.0}
        return {"id": self.name, "prompt": f"{self.mark} do what the script says", "timeout": timeout, **self.fields}


def some_process(pattern: str) -> str:
    """A shell condition: some process that can be seen has a command line that begins with this pattern."""
    return f"for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null | grep -q '^{pattern}'"


def no_process(pattern: str) -> str:
    """A shell condition: no process that can be seen has a command line that begins with this pattern."""
    return f"! {some_process(pattern)}"


def faulty(kind: FaultKind, **settings: Any) -> Move:
    return Move(text=RIGHT, faults=(Fault(kind=kind, **settings),))


def finds(key: str) -> str:
    """A shell command that prints every place in the sandbox where the key can be read, and spells the key nowhere."""
    half = len(key) // 2
    places = '"$HOME" "$PWD" /tmp /var/tmp /run /home /etc'
    pattern = f"printf '%s%s' {key[:half]} {key[half:]}"
    return (
        f"{pattern} | grep -asF -l -f - /proc/[0-9]*/environ /proc/[0-9]*/cmdline; "
        f"{pattern} | grep -asrF -l -D skip -f - {places}; true"
    )


_HELLO = Move(command="echo hello")
_DONE = Move(text=RIGHT)
_LEAVE = (
    "setsid nohup sleep 59811 >/dev/null 2>&1 & "
    "setsid env -i sh -c 'sleep 59812 & sleep 59813' >/dev/null 2>&1 & "
    "(trap '' TERM INT HUP; sleep 59814) >/dev/null 2>&1 & "
    "(trap '' TERM; while sleep 0.2; do echo late >>late.txt; done) >/dev/null 2>&1 & "
    "touch left"
)
"""Leaves every kind of process that outlives its parent."""


def _neighbour(own: str, other: str) -> Row:
    marks = f'for d in "$PWD" /tmp /dev/shm; do ls -a "$d"; done | grep \'of-near-{other}\''
    look = f"{marks}; tr '\\0' ' ' </proc/[0-9]*/cmdline 2>/dev/null | grep 'sleep 5983{other}'"
    before = (
        f'for d in "$PWD" /tmp /dev/shm; do touch "$d/of-near-{own}"; done; (setsid sleep 5983{own} >/dev/null 2>&1 &)'
    )
    checks = {"files": f"! {marks}", "processes": no_process(f"sleep 5983{other}"), "own": f"test -f of-near-{own}"}
    commanded = {"agent": "test -f seen.txt && test ! -s seen.txt"}
    moves = (Move(command=f"({look}) >seen.txt; true"), _DONE)
    return Row(f"near-{own}", moves, {"before": before, "checks": checks, "commanded": commanded, "meets": "near"})


def main_rows(key: str) -> list[Row]:
    """The rows of the one run that shows most promises; those that wait longest come first. No command spells the
    provider's key."""
    answer = f"echo {RIGHT} >answer.txt; ({finds(key)}) >key.txt"
    right = f"grep -qx {RIGHT} answer.txt"
    sound = {
        "said": RIGHT,
        "checks": {"later": f'test -z "$({finds(key)})"'},
        "commanded": {"answer": right, "agent": "test -f key.txt && test ! -s key.txt"},
    }
    served = {"service": some_process(SERVICE)}
    left = {
        "ran": "test -e left",
        "ended": no_process("sleep 5981"),
        "still": "! test -e late.txt || { wc -c <late.txt >a; sleep 0.6; wc -c <late.txt | cmp -s - a; }",
    }
    service = f"(setsid {SERVICE} >/dev/null 2>&1 &)"
    return [
        Row("always-500", (_HELLO, faulty(FaultKind.STATUS, status=500))),
        Row("always-cut", (_HELLO, faulty(FaultKind.CUT))),
        _neighbour("1", "2"),
        _neighbour("2", "1"),
        Row("silent", (faulty(FaultKind.HANG),), seconds=SILENT_SECONDS),
        # The time is over while an agent that tries again is still trying: no time limit hides a failing endpoint.
        Row("short-500", (faulty(FaultKind.STATUS, status=500),), seconds=LIMIT_SECONDS),
        Row(
            "late",
            (Move(command="touch made; setsid sleep 59801 & sleep 59802"), _DONE),
            {"checks": {"ended": no_process("sleep 5980"), "made": "test -e made"}},
            seconds=LIMIT_SECONDS,
        ),
        Row("killed", (_HELLO, faulty(FaultKind.HANG)), {"before": f"(setsid {VICTIM} >/dev/null 2>&1 &)"}),
        Row("no-finish", (_HELLO, faulty(FaultKind.NO_FINISH))),
        Row("sound", (Move(command=answer), _DONE), sound),
        Row(
            "wrong",
            (Move(command=f"echo {WRONG} >answer.txt"), Move(text=WRONG)),
            {"said": RIGHT, "commanded": {"answer": right}},
        ),
        Row("turns", (Move(command="echo once more"),)),
        Row("budget", (_HELLO, Move(command="echo dear", usage=Usage(prompt_tokens=6_000_000, completion_tokens=9)))),
        Row("window", (_HELLO, faulty(FaultKind.OVERFLOW, window=4096))),
        Row("recovers", (_HELLO, faulty(FaultKind.STATUS, status=500, attempts=1)), {"said": RIGHT}),
        Row("refused", (_HELLO, faulty(FaultKind.STATUS, status=401))),
        Row("leaves", (Move(command=_LEAVE), _DONE), {"before": service, "checks": {**left, **served}}),
        Row("bad-setup", fields={"before": "echo no such fixture >&2; exit 3"}),
        Row("bad-hook", fields={"hook": "raises"}),
    ]


DEAD_ROWS = [Row("dead")]
"""The row of the run whose endpoint refuses connections."""

INTERRUPTED_ROWS = [
    Row("preparing", fields={"before": "sleep 59851"}),
    Row("asking", (Move(command="setsid sleep 59853 >/dev/null 2>&1 &"), faulty(FaultKind.HANG))),
    Row("scoring", fields={"checks": {"endless": "sleep 59852"}}),
]
"""The rows of the run that is interrupted: each is in another stage then."""

INTERRUPTED_PROCESSES = ("sleep 59851", "sleep 59852")
"""What runs in the stages of those rows."""


class RowPolicy:
    """The scripted model's part in all rows, in one agent's dialect."""

    def __init__(self, rows: Sequence[Row], dialect: Dialect) -> None:
        self._rows = rows
        self._dialect = dialect
        self.commands: dict[str, bool] = {}
        """Whether the agent could be told to run a command, by row that was asked for."""
        self.streamed: dict[str, bool] = {}
        """Whether the agent asked for a stream, by row."""

    def __call__(self, request: ChatRequest, /) -> Reply:
        """The reply; a row that has ended gives its last one again."""
        row = next((row for row in self._rows if any(row.mark in text for text in request.texts)), None)
        if row is None:
            return Reply(text="I am a scripted model; this is not one of the suite's rows.")
        able = self._dialect.command(request, "true") is not None
        self.commands[row.name] = self.commands.get(row.name, False) or able
        self.streamed[row.name] = request.body.stream
        moves = [move for move in row.moves if able or not move.command] or [Move(text="I have no tool.")]
        move = moves[min(request.turn, len(moves) - 1)]
        reply = self._dialect.command(request, f": {COMMAND_MARK}; {move.command}") if move.command else None
        reply = reply or self._dialect.answer(request, move.text)
        return reply.model_copy(update={"faults": move.faults, "usage": move.usage})
