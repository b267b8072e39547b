"""Solves, or plausibly fails, the shipped sample tasks with OpenCode's own tools.

Invariant: what happens to the n-th rollout of a task depends on the seed, the task, n and the task's success rate,
and on nothing else.
The tools are those of OpenCode 1.18.33.
"""

import hashlib
import re
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from opencode_env.samples import Sample, load_samples
from opencode_env.scripted_model.policy import Script
from opencode_env.scripted_model.reply import Reply, ToolCall
from opencode_env.scripted_model.request import ChatRequest


@dataclass(frozen=True)
class Solution:
    """Two ways to go through one sample task: one that solves it and a plausible one that does not."""

    solve: tuple[Reply, ...]
    fail: tuple[Reply, ...]


def bash(command: str) -> ToolCall:
    return ToolCall(name="bash", arguments={"command": command})


def read(path: str) -> ToolCall:
    return ToolCall(name="read", arguments={"filePath": path})


def write(path: str, content: str) -> ToolCall:
    return ToolCall(name="write", arguments={"content": content, "filePath": path})


def edit(path: str, old: str, new: str, *, everywhere: bool = False) -> ToolCall:
    """Replace a text in a file, once or everywhere."""
    arguments = {"filePath": path, "oldString": old, "newString": new}
    return ToolCall(name="edit", arguments={**arguments, "replaceAll": True} if everywhere else {**arguments})


def grep(pattern: str, include: str | None = None) -> ToolCall:
    return ToolCall(name="grep", arguments={"pattern": pattern} | ({"include": include} if include else {}))


def glob(pattern: str) -> ToolCall:
    return ToolCall(name="glob", arguments={"pattern": pattern})


def turn(text: str, *calls: ToolCall, reasoning: str = "") -> Reply:
    """One assistant message with its tool calls, if any."""
    return Reply(text=text, reasoning=reasoning, tool_calls=calls)


SOLUTIONS: dict[str, Solution] = {}
"""By the id of the sample."""

_BUG = """    middle = len(values) // 2
    if len(values) % 2:
        return values[middle]
    return (values[middle] + values[middle + 1]) / 2
"""
_FIX = """    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
"""
_HALF_FIX = """    middle = len(values) // 2
    if len(values) % 2:
        return values[middle]
    return (values[middle - 1] + values[middle]) / 2
"""


def _fix_median(wrong: str, fix: str, done: str) -> tuple[Reply, ...]:
    return (
        turn("I run the tests first.", bash("python3 -m unittest test_stats")),
        turn("Now the code.", read("/app/stats.py"), reasoning="The even case of median fails."),
        turn(wrong, edit("/app/stats.py", _BUG, fix)),
        turn("I run the tests again.", bash("python3 -m unittest test_stats")),
        turn(f"`median` {done}; all tests pass."),
    )


_SORTED = "sorts a copy of its values now and takes the two middle ones"
# The failing path makes the visible tests pass and forgets that values come in any order.
SOLUTIONS["fix-median"] = Solution(
    solve=_fix_median("The list is not sorted, and the two middle values are wrong.", _FIX, _SORTED),
    fail=_fix_median("The two middle values are off by one.", _HALF_FIX, "takes the right two middle values now"),
)

_WRITE_ROMAN_MODULE = '''"""Roman numerals."""

NUMERALS = ({numerals})


def to_roman(number: int) -> str:
    """The Roman numeral of a number from 1 to 3999."""
    if not 1 <= number <= 3999:
        raise ValueError(f"no Roman numeral for {{number}}")
    text = ""
    for value, numeral in NUMERALS:
        while number >= value:
            text += numeral
            number -= value
    return text
'''
_ADDITIVE = {1000: "M", 500: "D", 100: "C", 50: "L", 10: "X", 5: "V", 1: "I"}
_SUBTRACTIVE = {900: "CM", 400: "CD", 90: "XC", 40: "XL", 9: "IX", 4: "IV"}


def _write_roman(numerals: dict[int, str]) -> tuple[Reply, ...]:
    rows = ", ".join(f'({value}, "{numeral}")' for value, numeral in sorted(numerals.items(), reverse=True))
    return (
        turn("I look at the tests.", read("/app/test_roman.py")),
        turn("I write the module.", write("/app/roman.py", _WRITE_ROMAN_MODULE.format(numerals=rows))),
        turn("Now I run the tests.", bash("cd /app && python3 -m unittest test_roman")),
        turn("/app/roman.py has `to_roman`; the tests pass."),
    )


# The failing path knows no subtractive notation, which the visible tests do not need.
SOLUTIONS["write-roman"] = Solution(solve=_write_roman(_ADDITIVE | _SUBTRACTIVE), fail=_write_roman(_ADDITIVE))

_FIND = turn("I look for the log files.", glob("**/*.log"))
_COUNT = "find /app/logs -name '*.log' -exec cat {} + | awk '$3 == \"ERROR\"' | wc -l > /app/answer.txt"
_COUNT_WORDS = "find /app/logs -name '*.log' -exec cat {} + | grep -c ERROR > /app/answer.txt"

# The failing path counts the word ERROR wherever it stands in a line.
SOLUTIONS["count-errors"] = Solution(
    solve=(
        _FIND,
        turn(
            "Now the lines.",
            grep("ERROR", "*.log"),
            reasoning="Some messages may hold the word too; only the third field is the level.",
        ),
        turn("The word also stands in messages, so I compare the third field.", bash(_COUNT)),
        turn("The number of lines with the level ERROR is in /app/answer.txt."),
    ),
    fail=(
        _FIND,
        turn("I count the lines.", bash(_COUNT_WORDS)),
        turn("The number of ERROR lines is in /app/answer.txt."),
    ),
)

# The failing path forgets the loaves that are given away.
SOLUTIONS["arithmetic-orders"] = Solution(
    solve=(
        turn(
            "44 of 48 and 88 of 96 loaves are paid for: 5 * 44 + 2 * 88 = 396 loaves, 1584 euros.",
            write("/app/answer.txt", "1584\n"),
            reasoning="Every twelfth loaf is free: 48 / 12 = 4 on a working day, 96 / 12 = 8 at the weekend.",
        ),
        turn("The bakery takes 1584 euros in a week."),
    ),
    fail=(
        turn("5 * 48 + 2 * 96 = 432 loaves, 1728 euros.", write("/app/answer.txt", "1728\n")),
        turn("The bakery takes 1728 euros in a week."),
    ),
)

_GREP = turn("I search for the name.", grep("calc_total"))
_FILES = "shop/cart.py shop/checkout.py shop/report.py docs/pricing.md"

# The failing path replaces the name inside longer names too.
SOLUTIONS["rename-function"] = Solution(
    solve=(
        _GREP,
        turn(
            "`recalc_totals` and `calc_total_limit` only look alike; I rename whole words.",
            bash(f"cd /app && sed -i 's/\\bcalc_total\\b/order_total/g' {_FILES}"),
        ),
        turn("Is the old name left anywhere?", grep(r"\bcalc_total\b"), bash("cd /app && python3 -m shop.report")),
        turn("`calc_total` is `order_total` everywhere, and the report prints what it printed before."),
    ),
    fail=(
        _GREP,
        turn(
            "I replace it in all files.",
            *(edit(f"/app/{name}", "calc_total", "order_total", everywhere=True) for name in _FILES.split()),
        ),
        turn("I run the report.", bash("cd /app && python3 -m shop.report")),
        turn("`calc_total` is `order_total` everywhere."),
    ),
)

_CSV_REPORT_PROGRAM = """import collections
import csv
import json


def amount(order):
    return int(order["quantity"]) * int(order["price"])


with open("/app/sales.csv", newline="") as file:
    orders = list(csv.DictReader(file))
paid = [order for order in orders if order["status"] == "paid"]

by_region = collections.Counter()
by_product = collections.Counter()
for order in GROUPED:
    by_region[order["region"]] += amount(order)
    by_product[order["product"]] += amount(order)

report = {
    "orders": len(paid),
    "revenue": sum(amount(order) for order in paid),
    "by_region": by_region,
    "best_product": by_product.most_common(1)[0][0],
}
with open("/app/report.json", "w") as file:
    json.dump(report, file, indent=2)
"""


def _csv_report(grouped: str) -> tuple[Reply, ...]:
    program = _CSV_REPORT_PROGRAM.replace("GROUPED", grouped)
    return (
        turn("I read the file.", read("/app/sales.csv")),
        turn("I write a program for it.", write("/app/make_report.py", program)),
        turn("I run it.", bash("python3 /app/make_report.py && cat /app/report.json")),
        turn("The report is in /app/report.json."),
    )


# The failing path groups cancelled orders too, which spoils two of the four keys.
SOLUTIONS["csv-report"] = Solution(solve=_csv_report("paid"), fail=_csv_report("orders"))

_PIG_LATIN_PROGRAM = r"""import re
import sys

for word in sys.stdin.read().split():
    if word[0] in "aeiou":
        print(word + "way")
    else:
        start, rest = re.match(r"PATTERN", word).groups()
        print(rest + start + "ay")
"""


def _pig_latin(pattern: str) -> tuple[Reply, ...]:
    translate = "python3 /app/pig.py < /app/words.txt > /app/pig.txt && paste /app/words.txt /app/pig.txt"
    return (
        turn("I look at the words.", read("/app/words.txt")),
        turn("I write a program for it.", write("/app/pig.py", _PIG_LATIN_PROGRAM.replace("PATTERN", pattern))),
        turn("I translate them.", bash(translate)),
        turn("The translation is in /app/pig.txt."),
    )


# The failing path moves one letter only, which gets 11 of 20 lines right.
SOLUTIONS["pig-latin"] = Solution(
    solve=_pig_latin(r"((?:qu|[^aeiou])(?:qu|[^aeiouyq])*)(.*)"), fail=_pig_latin(r"(.)(.*)")
)

_SCRIPT = """#!/bin/sh
# Deletes all .log files of a directory but the three newest.
set -eu
cd "$1"
kept=0
ls -t | while IFS= read -r name; do
    case $name in *.log) ;; *) continue ;; esac
    [ -f "$name" ] || continue
    kept=$((kept + 1))
    if [ "$kept" -gt 3 ]; then rm -- "$name"; fi
done
"""
_NAIVE = """#!/bin/sh
# Deletes all .log files of a directory but the three newest.
for name in $(ls -t "$1"/*.log | tail -n +4); do
    rm "$name"
done
"""
_TRY = (
    'd=$(mktemp -d) && for n in 1 2 3 4 5; do touch -d "2026-01-0$n" "$d/$n.log"; done && '
    'sh /app/rotate.sh "$d" && ls "$d" && rm -r "$d"'
)
_TRIED = (
    turn("I try it in a scratch directory.", bash(_TRY)),
    turn("/app/rotate.sh keeps the three newest log files."),
)
# The failing path splits file names at spaces.
SOLUTIONS["rotate-logs"] = Solution(
    solve=(turn("I write the script.", write("/app/rotate.sh", _SCRIPT)), *_TRIED),
    fail=(turn("I write the script.", write("/app/rotate.sh", _NAIVE)), *_TRIED),
)

# The failing path forgets the third.
SOLUTIONS["cone-volume"] = Solution(
    solve=(
        turn(
            "The radius is 12 / 2 = 6, the volume (1/3) * pi * 6^2 * 7.",
            bash("python3 -I -c 'print(6 ** 2 * 7 / 3)'"),
            reasoning="A third of the base area times the height.",
        ),
        turn("The cone holds $\\frac{1}{3}\\pi \\cdot 36 \\cdot 7$ cubic centimetres: \\boxed{84π \\text{ cm}^3}"),
    ),
    fail=(
        turn("The radius is 6, the base area 36 pi.", bash("python3 -I -c 'print(6 ** 2 * 7)'")),
        turn("Base area times height is \\boxed{252\\pi}."),
    ),
)

# The failing path loses one of the two roots.
SOLUTIONS["quadratic-roots"] = Solution(
    solve=(
        turn(
            "(x - 3)^2 = 2, so x is 3 plus or minus the root of 2.",
            write("/app/answer.txt", "x = 3 - sqrt(2) or x = 3 + sqrt(2)\n"),
            reasoning="x^2 - 6x + 9 = 2.",
        ),
        turn("Both roots are in /app/answer.txt."),
    ),
    fail=(
        turn("(x - 3)^2 = 2, so x is 3 plus the root of 2.", write("/app/answer.txt", "3 + sqrt(2)\n")),
        turn("The root is in /app/answer.txt."),
    ),
)


_REMEMBERED_ROLLOUTS = 100_000
_CALL_ID = re.compile(r"call_(?P<task>.+)_(?P<rollout>\d+)_\d+_\d+")


def coin(seed: int, task_id: str, rollout: int) -> float:
    """A number in [0, 1) made of its arguments alone; a rollout solves its task when it is below the rate."""
    digest = hashlib.sha256(f"{seed}\0{task_id}\0{rollout}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / (1 << 56)


class SamplesPolicy:
    """The default policy: plays `solutions` for a sample task, and for any other prompt says what it is.

    Reproducibility: the rollouts of a task are numbered 0, 1, 2, … in the order in which their first requests
    arrive at this policy object, and number n solves its task exactly when `coin(seed, task_id, n) < rate`. So a
    fresh policy with the same seed and rates gives the same sequence of outcomes per task, however tasks are
    mixed and whatever runs beside them; of concurrent rollouts of one task the set of outcomes is fixed, and which
    of them gets which follows the order of arrival. Session ids are random in every run, so they take no part in
    the coin: they only tell a retry of a first request from a new rollout (without the header it counts as a new
    one). Later turns carry the number in their tool-call ids, so they survive a restart of the server.

    Args:
        success_rate: share of rollouts that solve their task, for tasks without a rate of their own.
        seed: another seed, other outcomes.
        success_rates: rates by sample id.

    Raises:
        ValueError: a rate outside 0…1, or a rate for an unknown sample.
    """

    def __init__(
        self, success_rate: float = 0.7, seed: int = 0, success_rates: Mapping[str, float] | None = None
    ) -> None:
        self.samples = load_samples()
        self.seed = seed
        self.success_rates = {sample.id: success_rate for sample in self.samples}
        for task_id, rate in (success_rates or {}).items():
            if task_id not in self.success_rates:
                near = get_close_matches(task_id, self.success_rates, n=1) or sorted(self.success_rates)
                raise ValueError(f'no sample has the id "{task_id}"; did you mean: {", ".join(near)}')
            self.success_rates[task_id] = rate
        for task_id, rate in self.success_rates.items():
            if not 0 <= rate <= 1:
                raise ValueError(f'the success rate of "{task_id}" must be from 0 to 1, not {rate}')
        self._arrivals: Counter[str] = Counter()
        self._sessions: OrderedDict[tuple[str, str], int] = OrderedDict()

    def solves(self, task_id: str, rollout: int) -> bool:
        """Whether the rollout with this number (from 0) solves the task."""
        return coin(self.seed, task_id, rollout) < self.success_rates[task_id]

    def __call__(self, request: ChatRequest, /) -> Reply:
        texts = request.user_texts
        sample = next((one for one in self.samples if any(one.question.strip() in text for text in texts)), None)
        if sample is None:
            return Reply(text="I am a scripted model, not a language model, and have no script for this prompt.")
        if not request.tools:
            return Reply(text=f"Sample task {sample.id}")
        rollout = self._rollout_of(request, sample)
        solution = SOLUTIONS[sample.id]
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
            if len(self._sessions) > _REMEMBERED_ROLLOUTS:
                self._sessions.popitem(last=False)
        return self._sessions[key]

    def _arrive(self, sample: Sample) -> int:
        self._arrivals[sample.id] += 1
        return self._arrivals[sample.id] - 1
