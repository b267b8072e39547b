"""The policies that ship: for the sample tasks, for the shipped worlds, and for tools that nobody here knows.

The one for sample tasks solves them, or plausibly fails, with OpenCode's own tools, as `samples/solutions.toml` says;
the one for worlds knows what a player is told, and nothing of their code; the last calls any tool, with arguments by
chance that the JSON schema of its parameters allows.
"""

import hashlib
import json
import math
import random
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from opencode_env.samples import SAMPLES_PATH, Sample, load_samples
from opencode_env.scripted_model.policy import LABEL, ChatRequest, Reply, Script, ToolCall


class Solution(BaseModel):
    """Two ways to go through one sample task: one that solves it and a plausible one that does not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    solve: tuple[Reply, ...]
    fail: tuple[Reply, ...]


def load_solutions() -> dict[str, Solution]:
    """The shipped solutions, by the id of the sample."""
    text = SAMPLES_PATH.with_name("solutions.toml").read_text(encoding="utf-8")
    return TypeAdapter(dict[str, Solution]).validate_python(tomllib.loads(text))


_CALL_ID = re.compile(r"call_(?P<task>.+)_(?P<rollout>\d+)_\d+_\d+")


def coin(seed: int, task_id: str, rollout: int) -> float:
    """A number in [0, 1) made of its arguments alone; a rollout solves its task when it is below the rate."""
    digest = hashlib.sha256(f"{seed}\0{task_id}\0{rollout}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / (1 << 56)


class SamplesPolicy:
    """The default policy: plays the `solutions` of sample tasks, and for any other prompt says what it is.

    Reproducibility: the rollouts of a task are numbered 0, 1, 2, … in the order in which their first requests
    arrive at this policy object, and number n solves its task exactly when `coin(seed, task_id, n) < rate`. So a
    fresh policy with the same seed and rate gives the same sequence of outcomes per task, however tasks are
    mixed and whatever runs beside them; of concurrent rollouts of one task the set of outcomes is fixed, and which
    of them gets which follows the order of arrival. Session ids are random in every run, so they take no part in
    the coin: they only tell a retry of a first request from a new rollout (without the header it counts as a new
    one). Later turns carry the number in their tool-call ids, so they survive a restart of the server.

    Args:
        success_rate: share of rollouts that solve their task.
        seed: another seed, other outcomes.

    Raises:
        ValueError: a rate outside 0…1.
    """

    def __init__(self, success_rate: float = 0.7, seed: int = 0) -> None:
        if not 0 <= success_rate <= 1:
            raise ValueError(f"the success rate must be from 0 to 1, not {success_rate}")
        self.samples = load_samples()
        self.solutions = load_solutions()
        self.success_rate = success_rate
        self.seed = seed
        self._arrivals: Counter[str] = Counter()
        self._sessions: dict[tuple[str, str], int] = {}

    def solves(self, task_id: str, rollout: int) -> bool:
        """Whether the rollout with this number (from 0) solves the task."""
        return coin(self.seed, task_id, rollout) < self.success_rate

    def __call__(self, request: ChatRequest, /) -> Reply:
        texts = request.user_texts
        sample = next((one for one in self.samples if any(one.question.strip() in text for text in texts)), None)
        if sample is None:
            return Reply(text="I am a scripted model, not a language model, and have no script for this prompt.")
        if not request.tools:
            return Reply(text=f"Sample task {sample.id}")
        rollout = self._rollout_of(request, sample)
        solution = self.solutions[sample.id]
        reply = Script(steps=solution.solve if self.solves(sample.id, rollout) else solution.fail).reply(request)
        if missing := {call.name for call in reply.tool_calls} - set(request.tools):
            return Reply(text=f"I am a scripted model and cannot go on without: {', '.join(sorted(missing))}.")
        calls = (
            call.model_copy(update={"id": f"call_{sample.id}_{rollout}_{request.turn}_{index}"})
            for index, call in enumerate(reply.tool_calls)
        )
        return reply.model_copy(update={"tool_calls": tuple(calls)})

    def _rollout_of(self, request: ChatRequest, sample: Sample) -> int:
        for message in request.assistant_messages():
            for call in message.tool_calls or ():
                found = _CALL_ID.fullmatch(call.id)
                if found and found["task"] == sample.id:
                    return int(found["rollout"])
        if request.session_id is None:
            return self._arrive(sample)
        key = (sample.id, request.session_id)
        if key not in self._sessions:
            self._sessions[key] = self._arrive(sample)
        return self._sessions[key]

    def _arrive(self, sample: Sample) -> int:
        self._arrivals[sample.id] += 1
        return self._arrivals[sample.id] - 1


def _call(tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=tool, arguments=arguments)


# The frozen lake: always the move that reaches G most likely, holes and slips considered.
_MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
_NAMES = tuple(_MOVES)
_PLACE = re.compile(r"You are in row (\d+), column (\d+)")
_IMPATIENCE = 0.999
"""What reaching G one move later is worth, so that no walk goes in circles."""

_Cell = tuple[int, int]


def _play_lake(request: ChatRequest) -> Reply:
    """The next move, or a last word when the walk is over."""
    seen = request.texts[-1]
    found = _PLACE.findall(seen)
    if not found or "You have" in seen:
        return Reply(text="The walk is over.")
    lake = tuple(line for line in request.prompt.splitlines() if line and set(line) <= set("SFHG"))
    row, column = found[-1]
    direction = _plan(lake, "slippery" in request.prompt)[int(row), int(column)]
    return Reply(text=f"I go {direction}.", tool_calls=(_call("frozen_lake_move", direction=direction),))


@lru_cache(maxsize=256)
def _plan(lake: Sequence[str], slippery: bool) -> dict[_Cell, str]:
    """The best direction by place: value iteration over the rules that the prompt tells."""
    places = [(row, column) for row, line in enumerate(lake) for column in range(len(line))]
    worth = {place: float(lake[place[0]][place[1]] == "G") for place in places}
    free = [(row, column) for row, column in places if lake[row][column] in "SF"]
    for _ in range(400):
        for place in free:
            worth[place] = _IMPATIENCE * max(_expected(lake, worth, place, aim, slippery) for aim in range(4))
    # The first of several that are equally good.
    expected = {place: [_expected(lake, worth, place, aim, slippery) for aim in range(4)] for place in free}
    return {place: _NAMES[values.index(max(values))] for place, values in expected.items()}


def _expected(lake: Sequence[str], worth: dict[_Cell, float], place: _Cell, aim: int, slippery: bool) -> float:
    aims = [(aim + side) % 4 for side in (-1, 0, 1)] if slippery else [aim]
    return sum(worth[_moved(lake, place, _NAMES[one])] for one in aims) / len(aims)


def _moved(lake: Sequence[str], place: _Cell, direction: str) -> _Cell:
    down, right = _MOVES[direction]
    last = len(lake) - 1
    return min(max(place[0] + down, 0), last), min(max(place[1] + right, 0), last)


# The issue tracker: looks at the people and the issues, does what the prompt asks, and hands the work in.
_Issue = dict[str, Any]

_FINISH = Reply(text="I hand the work in.", tool_calls=(_call("tracker_finish", summary="done"),))


def _play_tracker(request: ChatRequest) -> Reply:
    """Look, do, and finish, one turn for each; a turn more where the number of a new issue must be known."""
    seen = [message.text for message in request.body.messages if message.role == "tool"]
    if any("handed in" in text for text in seen):
        return Reply(text="Done.")
    if not seen:
        calls = [_call("tracker_list_people"), _call("tracker_list_issues", state="open")]
        return Reply(text="I look around.", tool_calls=tuple(calls))
    people = {person["area"]: person["name"] for person in json.loads(seen[0])["people"]}
    issues = json.loads(seen[1])["issues"]
    calls = next((work(request.prompt, people, issues) for words, work in _WORK.items() if words in request.prompt), [])
    done = len(seen) - 2
    if not done:
        return Reply(text="I do it.", tool_calls=tuple(calls)) if calls else _FINISH
    if "Open an issue" in request.prompt and done == 1:
        area = re.findall(r'"(\w+)", and assign', request.prompt)[0]
        call = _call("tracker_assign_issue", number=json.loads(seen[2])["number"], assignee=people[area])
        return Reply(text="I assign it.", tool_calls=(call,))
    return _FINISH


def _triage(prompt: str, people: dict[str, str], issues: Sequence[_Issue]) -> list[ToolCall]:
    calls = []
    for bug in (issue for issue in issues if "bug" in issue["labels"]):
        area = next(area for area in bug["labels"] if area in people)
        calls.append(_call("tracker_assign_issue", number=bug["number"], assignee=people[area]))
    return calls


def _duplicates(prompt: str, people: dict[str, str], issues: Sequence[_Issue]) -> list[ToolCall]:
    first: dict[str, int] = {}
    for issue in issues:
        number = issue["number"]
        if (kept := first.setdefault(issue["title"], number)) != number:
            comment = _call("tracker_comment_issue", number=number, text=f"see #{kept}")
            return [comment, _call("tracker_close_issue", number=number, reason="duplicate", duplicate_of=kept)]
    return []


def _stale(prompt: str, people: dict[str, str], issues: Sequence[_Issue]) -> list[ToolCall]:
    days = int(re.findall(r"more than (\d+) days", prompt)[0])
    old = [issue for issue in issues if "needs-info" in issue["labels"] and issue["idle_days"] > days]
    return [_call("tracker_close_issue", number=issue["number"], reason="stale") for issue in old]


def _report(prompt: str, people: dict[str, str], issues: Sequence[_Issue]) -> list[ToolCall]:
    title, area = re.findall(r'titled "(.+?)".*? and "(\w+)"', prompt)[0]
    return [_call("tracker_create_issue", title=title, body="Seen today.", labels=["bug", area])]


_WORK = {"Assign every": _triage, "same title": _duplicates, "Close every": _stale, "Open an issue": _report}
"""What there is to do, by words of the prompt."""


# The order desk: finds the customer's order, does what the rules allow, and tells the customer.
_CUSTOMER = re.compile(r"^(\w+) writes: ", re.MULTILINE)
_WISHES = (
    (re.compile(r"I ordered a (\w+), and would like it in (\w+) instead"), "change_colour", "open"),
    (re.compile(r"I ordered a (\w+) and do not want it any more"), "cancel_order", "open"),
    (re.compile(r"send back the (\w+)"), "accept_return", "delivered"),
)


def _play_desk(request: ChatRequest) -> Reply:
    """Look, do, tell: one turn for each; what the customer says then changes nothing."""
    seen = [message.text for message in request.body.messages if message.role == "tool"]
    if not seen:
        (customer,) = _CUSTOMER.findall(request.prompt)[:1]
        return Reply(text="I look for the order.", tool_calls=(_call("order_desk_find_orders", customer=customer),))
    if len(seen) > 1:
        return Reply(text="It is done.")
    for wish, name, state in _WISHES:
        if (found := wish.search(request.prompt)) is None:
            continue
        order = next(one for one in json.loads(seen[0])["orders"] if one["thing"] == found[1])
        if order["state"] == state:
            more = {"colour": found[2]} if name == "change_colour" else {}
            return Reply(text="I do it.", tool_calls=(_call(f"order_desk_{name}", number=order["number"], **more),))
    return Reply(text="I am sorry, that cannot be done any more.")


_PLAYERS = {"frozen_lake_move": _play_lake, "tracker_finish": _play_tracker, "order_desk_find_orders": _play_desk}
"""By a tool that only the player's world has."""


class WorldsPolicy:
    """Plays whichever shipped world a request offers the tools of, and for any other says what it is."""

    def __call__(self, request: ChatRequest, /) -> Reply:
        for tool, play in _PLAYERS.items():
            if tool in request.tools:
                return play(request)
        return Reply(text=f"This is a {LABEL}; it plays the shipped worlds and was offered the tools of none.")


Schema = Mapping[str, Any]

_DEEPEST = 6
"""Levels of nesting below which only what must be there is made."""
_WORDS = ("apple", "blue", "one", "north", "note", "river")
_FORMATS = {
    "date": "2024-05-17",
    "date-time": "2024-05-17T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "PT5M",
    "email": "ada@example.com",
    "uri": "https://example.com/a",
    "uuid": "5f0c1c2e-8f0b-4b7e-9d54-0d2f6c1a7e11",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
}
_RANGE = 20
"""Numbers without bounds are from 0 to this."""


def value_of(schema: Any, source: random.Random, root: Schema | None = None, depth: int = 0) -> Any:
    """One value; words of a schema that describe few tools (`pattern`, `multipleOf`, `not`, …) are ignored."""
    if not isinstance(schema, Mapping):
        return source.choice(_WORDS)  # true: anything will do
    root = schema if root is None else root
    schema = _whole(schema, root)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return source.choice(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if choices := schema.get(key):
            rest = {name: value for name, value in schema.items() if name != key}
            chosen = source.choice(choices) if depth < _DEEPEST else min(choices, key=_weight)
            return value_of(_merged(rest, _whole(chosen, root)), source, root, depth)
    kind = schema.get("type") or _kind_of(schema)
    if isinstance(kind, list):
        kind = source.choice(kind)
    match kind:
        case "object":
            properties, required = schema.get("properties", {}), schema.get("required", ())
            names = [name for name in properties if name in required or (depth < _DEEPEST and source.random() < 1 / 2)]
            names += [name for name in required if name not in properties]
            more = schema.get("additionalProperties")
            return {name: value_of(properties.get(name, more), source, root, depth + 1) for name in names}
        case "array":
            return _array(schema, source, root, depth)
        case "integer" | "number":
            return _number(schema, source, whole=kind == "integer")
        case "boolean":
            return source.random() < 1 / 2
        case "null":
            return None
    word = _FORMATS.get(schema.get("format", "")) or source.choice(_WORDS)
    return word.ljust(schema.get("minLength", 0), "a")[: schema.get("maxLength")]


def _whole(schema: Any, root: Schema) -> Schema:
    """The schema with what it refers to and all that it must also be."""
    found: Schema = schema if isinstance(schema, Mapping) else {}
    seen = set()
    while isinstance(reference := found.get("$ref"), str) and reference not in seen:
        seen.add(reference)
        target: Any = root
        for part in filter(None, reference.lstrip("#").split("/")):
            name = part.replace("~1", "/").replace("~0", "~")
            target = target.get(name, {}) if isinstance(target, Mapping) else {}
        found = _merged({name: value for name, value in found.items() if name != "$ref"}, target)
    for part in found.get("allOf", ()):
        found = _merged(found, _whole(part, root))
    return found


def _merged(first: Schema, second: Schema) -> Schema:
    properties = {**second.get("properties", {}), **first.get("properties", {})}
    required = list(dict.fromkeys([*first.get("required", ()), *second.get("required", ())]))
    return {
        **second,
        **first,
        **({"properties": properties} if properties else {}),
        **({"required": required} if required else {}),
    }


def _weight(schema: Any) -> int:
    """Return how much a choice holds, so that a type that holds itself comes to an end."""
    return len(str(schema)) + 1000 * any(word in str(schema) for word in ("$ref", "object", "array"))


def _kind_of(schema: Schema) -> str:
    kinds = {"object": ("properties", "required"), "array": ("items", "prefixItems", "minItems")}
    return next((kind for kind, words in kinds.items() if schema.keys() & set(words)), "string")


def _array(schema: Schema, source: random.Random, root: Schema, depth: int) -> list[Any]:
    first = schema.get("prefixItems", [])
    least = max(schema.get("minItems", 0), 0)
    most = min(schema.get("maxItems", least + 2), least + 2) if depth < _DEEPEST else least
    made = [value_of(item, source, root, depth + 1) for item in first]
    count = max(source.randint(least, max(least, most)), len(made) if "minItems" in schema else 0)
    items = schema.get("items")
    for _ in range(20 * (count + 1)):
        if len(made) >= count or items is False:
            break
        value = value_of(items, source, root, depth + 1)
        if not schema.get("uniqueItems") or value not in made:
            made.append(value)
    return made


def _number(schema: Schema, source: random.Random, *, whole: bool) -> float:
    lows = [schema[name] for name in ("minimum", "exclusiveMinimum") if name in schema]
    tops = [schema[name] for name in ("maximum", "exclusiveMaximum") if name in schema]
    low = max(lows) if lows else min([0, *(top - _RANGE for top in tops)])
    top = min(tops) if tops else low + _RANGE
    if not whole:
        return float(low + (top - low) * source.choice((0.25, 0.5, 0.75)))
    first, last = math.ceil(low), math.floor(top)
    first += first == schema.get("exclusiveMinimum")
    last -= last == schema.get("exclusiveMaximum")
    return source.randint(first, max(first, min(last, first + _RANGE)))


@dataclass(frozen=True)
class ToolsPolicy:
    """Calls one offered tool a turn, chosen with its arguments by chance, and stops after `turns`.

    The same prompt, turn and seed give the same call.
    """

    tools: str = "*"
    """Pattern of the names of the tools that are called, as of a shell: `shop_*`."""
    turns: int = 10
    """How many calls a conversation has."""
    seed: int = 0
    """Another seed, other calls."""

    def __call__(self, request: ChatRequest, /) -> Reply:
        names = [name for name in request.tools if fnmatchcase(name, self.tools)]
        if not names:
            return Reply(text=f"This is a {LABEL}; none of the tools that it was offered is like {self.tools!r}.")
        if request.turn >= self.turns:
            return Reply(text=f"I have called {request.turn} tools.")
        source = random.Random(f"{self.seed} {request.turn} {request.prompt}")
        name = source.choice(names)
        arguments = value_of({"type": "object", **request.tool_parameters[name]}, source)
        return Reply(text=f"I call {name}.", tool_calls=(ToolCall(name=name, arguments=arguments),))
