"""Rows as INTELLECT-3-RL has them, with an answer that is right and one that is wrong for each."""

import json
from dataclasses import dataclass
from typing import Any

# The columns of difficulty.
MATH = "avg@8_qwen3_4b_thinking_2507"
SCIENCE = "avg@16_qwen3_4b_instruct_2507"
CODE = "avg@8_qwen3_4b_instruct_2507"


@dataclass(frozen=True)
class Problem:
    """A row, and what an agent may write for it."""

    row: dict[str, Any]
    gold: str
    wrong: str


def _question(number: int, key: str, question: str, answer: str, gold: str, wrong: str) -> Problem:
    return Problem({"id": f"q{number}", "question": question, "answer": answer, key: 0.5, "info": "{}"}, gold, wrong)


def _code(number: int, question: str, tests: dict[str, Any], gold: str, wrong: str) -> Problem:
    info = json.dumps({"source": "made here", "tests": json.dumps(tests)})
    return Problem({"id": f"c{number}", "question": question, "info": info, CODE: 0.25 * number}, gold, wrong)


MATHS = [
    _question(1, MATH, "Find the area of a circle of radius $\\sqrt{84}$.", "84\\pi", "\\boxed{84\\pi}", "83\\pi"),
    _question(2, MATH, "What is $1/3 + 1/6$?", "\\frac{1}{2}", "0.5", "0.6"),
]
SCIENCES = [
    _question(1, SCIENCE, "How long does light need for 450 million km?", "1500 s", "25 min", "25 s"),
    _question(2, SCIENCE, "Which is it? (A) water (B) air", "B", "B", "A"),
]
_MANY = {"inputs": [f"{n} {n + 1}\n" for n in range(40)], "outputs": [f"{2 * n + 1}\n" for n in range(40)]}
CODES = [
    _code(1, "Print the sum of two numbers.", _MANY, "print(sum(map(int, input().split())))", "print(3)"),
    _code(
        2,
        "Reverse a list.",
        {"fn_name": "turned", "inputs": ["[1, 2]", "[]", '["a"]'], "outputs": ["[2, 1]", "[]", '["a"]']},
        "def turned(items: List[int]):\n    return items[::-1]",
        "import os\nos._exit(0)",
    ),
]
PROBLEMS = {"opencode-math": MATHS, "opencode-science": SCIENCES, "opencode-cp": CODES}
ANSWERS = {"opencode-math": "answer.txt", "opencode-science": "answer.txt", "opencode-cp": "answer.py"}
