"""Runs made by hand that have everything a page shows: tools, times, tokens, forks, sub calls, worlds, each outcome."""

import json
import random
from collections.abc import Iterator
from typing import Any

from opencode_env.agents.opencode.env import OpenCodeEnvConfig

from tests.difficulty.lines import Line, write_run
from tests.trainable import graphs

__all__ = ["Line", "write_run"]

START = 1_790_000_000.0
TASKS = ("fix-median", "write-roman", "count-errors", "rename-function", "csv-report", "rotate-logs", "cone-volume")
_ROWS = OpenCodeEnvConfig().outcomes()
OUTCOMES = tuple(dict.fromkeys(error for row in _ROWS for error in row.errors))
"""Each error type of the table of outcomes."""
STOPS = tuple(row.stop for row in _ROWS if row.stop)
"""Each stop of the table of outcomes."""


def call(tool: str, number: int, **arguments: Any) -> Line:
    """A tool call as a message holds it."""
    return {"id": f"call_{number}", "type": "function", "name": tool, "arguments": json.dumps(arguments)}


EDIT = {
    "filePath": "/app/stats.py",
    "oldString": "def median(values):\n    return values[len(values) // 2]",
    "newString": "def median(values):\n    half = len(values) // 2\n    return sorted(values)[half]",
}
TEST = {"command": "cd /app && python3 -m unittest -v", "description": "Runs the tests"}
TESTED = "test_even ... \u001b[32mok\u001b[0m\ntest_odd ... \u001b[1;31mFAIL\u001b[0m\n\nRan 2 tests in 0.001s"
EVEN = "The middle of an **even** list is wrong:\n\n```python\nreturn values[len(values) // 2]\n```"
READ = "1: import unittest\n2: from stats import median"
TURNS = (
    ("I look at the tests.", "read", {"filePath": "/app/test_median.py"}, READ),
    (EVEN, "edit", EDIT, "Edit applied successfully."),
    ("Now the tests.", "bash", TEST, TESTED),
)


def trace(number: int, reward: float | None = 1.0, *, turns: int = 3, tokens: bool = False, **changes: Any) -> Line:
    """A sound trace of some turns; with `tokens`, as a training client leaves it."""
    draw = random.Random(number)
    nodes: list[Line] = []
    calls: list[Line] = []
    clock = START + 60 * number
    said = [
        {"role": "system", "content": "You are opencode, a coding agent. " + "Use the tools. " * 200},
        {"role": "user", "content": "`median` in /app/stats.py is wrong. Mend it.\n\n- keep its name\n- run the tests"},
    ]
    now = clock + 1.5
    for turn in range(turns):
        text, tool, arguments, result = TURNS[turn % len(TURNS)]
        last = turn == turns - 1
        asked = [] if last else [call(tool, turn, **arguments)]
        answer = {"role": "assistant", "content": "All tests pass now." if last else text, "tool_calls": asked}
        nodes += _nodes(nodes, said, answer, now, draw, tokens)
        took = draw.uniform(0.4, 3.0)
        out = sum(nodes[-1]["mask"]) if tokens else 40
        usage = {"prompt_tokens": 300 + 90 * turn, "completion_tokens": out}
        if tokens:
            usage = {"prompt_tokens": sum(len(node["token_ids"]) for node in nodes) - out, "completion_tokens": out}
        calls.append(
            {"node": len(nodes) - 1, "model": "small", "sampling": {"temperature": 0.7}, "usage": usage}
            | {"finish_reason": "stop" if last else "tool_calls", "time": {"start": now, "end": now + took}}
        )
        said = [{"role": "tool", "tool_call_id": f"call_{turn}", "name": tool, "content": result}]
        now += took + draw.uniform(0.1, 2.0)
    config = {"model": "small", "sampling": {"temperature": 0.7}}
    verified = {"command": "python3 -m unittest", "exit_code": int(reward != 1.0), "stdout": "Ran 2 tests"}
    made = {
        "version": 1,
        "id": f"{number:032x}",
        "verifiers": {"version": "0.4.0"},
        "agent": {
            "name": "agent",
            "trainable": True,
            "config": config | {"harness": {"id": "opencode-env"}, "runtime": {"type": "subprocess"}},
        },
        "tools": [
            {"type": "function", "name": name, "description": f"The tool {name}."} for name in ("bash", "edit", "read")
        ],
        "nodes": nodes,
        "calls": calls,
        "rewards": {} if reward is None else {"verify": {"score": reward, "weight": 1.0}},
        "metrics": {"num_turns": float(turns)},
        "ok": True,
        "stop_condition": "agent_completed",
        "errors": [],
        "num_total_tokens": 900 + 60 * turns,
        "timing": {
            "start": clock,
            "boot": {"start": clock, "end": clock + 0.4},
            "setup": {"start": clock + 0.4, "end": clock + 0.9},
            "agent": {"start": clock + 0.9, "end": now},
            "finalize": {"start": now, "end": now + 0.1},
            "scoring": {"start": now + 0.1, "end": now + 1.2},
        },
        "info": {
            "agent": {"exit_code": 0, "version": "1.18.33", "outcome": "completed"}
            | {"log_tail": "the end of the log", "duration": now - clock},
            "verify": [verified | {"duration": 0.4, "stderr": "", "timed_out": False}],
        },
    }
    return made | changes


def _nodes(
    before: list[Line], said: list[Line], answer: Line, at: float, draw: random.Random, tokens: bool
) -> list[Line]:
    made: list[Line] = []
    for message in (*said, answer):
        place = len(before) + len(made)
        sampled = message is answer
        count = max(2, len(message["content"]) // 6)
        ids = [draw.randrange(30_000) for _ in range(count)] if tokens else []
        mask = [sampled and i > 0 for i in range(len(ids))]
        logprobs = [-round(draw.expovariate(1.5), 4) for _ in ids[1:]] if sampled else []
        node = {"parent": place - 1 if place else None, "message": message, "sampled": sampled, "timestamp": at}
        made.append(node | {"token_ids": ids, "mask": mask, "logprobs": logprobs})
    return made


def forked(number: int) -> Line:
    """A trace with tokens whose history forks: the agent told its second turn otherwise."""
    made = trace(number, 0.0, tokens=True)
    nodes = made["nodes"]
    told, answer = nodes[3:5]
    told = told | {"parent": 2, "message": told["message"] | {"content": READ.replace("median", "MEDIAN")}}
    nodes += [told, answer | {"parent": len(nodes)}]
    made["calls"].append(made["calls"][1] | {"node": len(nodes) - 1})
    made["info"]["history"] = {"forks": 1, "first": [{"message": 3, "turn": 2, "how": "another tool result"}]}
    made["metrics"]["history_forks"] = 1.0
    return made


def compacted(number: int, *, elsewhere: bool = False) -> Line:
    """A trace with tokens whose conversation was compacted twice; each message says its number."""
    nodes, info = graphs.compacted_elsewhere() if elsewhere else graphs.compacted()
    for place, node in enumerate(nodes):
        node["message"] = node["message"] | {"content": f"said in message {place}"}
    made = trace(number, 1.0, nodes=nodes, calls=graphs.calls(nodes))
    made["info"] |= info
    made["metrics"]["history_forks"] = 0.0
    return made


def sub(number: int, main: Line, count: int = 3) -> Line:
    """A trace of sub calls that began while the main agent's first tool ran."""
    begin = main["calls"][0]["time"]["end"]
    nodes: list[Line] = []
    calls: list[Line] = []
    for place in range(count):
        asked = {"role": "user", "content": f"What does part {place + 1} of the diary say?"}
        answer = {"role": "assistant", "content": f"Part {place + 1} says nothing of a **badger**."}
        nodes.append({"parent": None, "sampled": False, "message": asked})
        nodes.append({"parent": len(nodes) - 1, "sampled": True, "message": answer})
        usage = {"prompt_tokens": 80, "completion_tokens": 9}
        time = {"start": begin + 0.01 * place, "end": begin + 0.03 + 0.01 * place}
        calls.append({"node": len(nodes) - 1, "model": "tiny", "usage": usage, "time": time})
    agent = {"name": "sub", "trainable": False, "config": {"model": "tiny"}}
    return trace(number, None, agent=agent, nodes=nodes, calls=calls, info={}, timing={})


LEDGER = {
    "steps": [
        {"step": step, "tool": "sell", "arguments": {"fruit": fruit}, "observation": seen, "reward": float(step)}
        | {"terminated": step == 2, "truncated": False, "info": {}}
        for step, fruit, seen in ((1, "apple", "sold"), (2, "pear", {"left": 0}))
    ],
    "summary": {"world": "shop", "seed": 3, "config": {}, "steps": 2, "total_reward": 3.0, "terminated": True},
}


def episode(number: int, task: str, *traces: Line, **changes: Any) -> Line:
    """An episode of a task; it is ok if all its traces are."""
    data = {"id": task, "prompt": "Mend it.", "setup": ["true"], "verify": ["python3 -m unittest"]}
    return {
        "id": f"{number + (1 << 64):032x}",
        "env": {"id": "opencode-env"},
        "task": {"type": "Task", "key": task, "hash": task, "data": data},
        "ok": all(one["ok"] for one in traces),
        "errors": [],
        "traces": list(traces),
    } | changes


def failed(number: int, kind: str) -> Line:
    """A trace that ended with an error."""
    error = {"type": kind, "message": f"{kind}: the \u001b[31mlast\u001b[0m words"}
    error["traceback"] = "Traceback (most recent call last):\n  File ..."
    return trace(number, None, ok=False, stop_condition="error", errors=[error])


def every_outcome() -> list[Line]:
    """An episode of each outcome: errors of every type, timeouts, no reward, no trace, no model call."""
    lines = [episode(number, f"fails-with-{kind}", failed(number, kind)) for number, kind in enumerate(OUTCOMES)]
    stops = (*STOPS, "scoring_timeout", "setup_timeout", "max_turns")
    lines += [
        episode(100 + i, f"stops-by-{stop}", trace(100 + i, 0.0, stop_condition=stop)) for i, stop in enumerate(stops)
    ]
    lines.append(episode(120, "has-no-reward", trace(120, None)))
    lines.append(episode(121, "has-no-trace", errors=[{"type": "EnvError", "message": "not built"}], ok=False))
    lines.append(episode(122, "calls-no-model", trace(122, 0.0, turns=0, num_total_tokens=0)))
    return lines


def rich() -> list[Line]:
    """Groups of four with tokens, a fork, sub calls and a world."""
    lines = [
        episode(1000 + 4 * place + i, task, trace(1000 + 4 * place + i, float((i + place) % 3 == 0), tokens=True))
        for place, task in enumerate(TASKS)
        for i in range(4)
    ]
    told = lines[0]["traces"][0]
    told["info"]["logprobs"] = [{"node": 2, "tokens": ["I look at", " the tests."], "logprobs": [-0.1, -2.5]}]
    main = trace(1900, 1.0, turns=4)
    lines.append(episode(1900, "ask-the-diary", main, sub(1901, main)))
    lines.append(episode(1902, "forked", forked(1902)))
    world = trace(1903, 3.0)
    world["info"]["simulation"] = LEDGER
    lines.append(episode(1903, "sell-fruit", world))
    return lines


def continued() -> list[Line]:
    """A rollout, five that went on from its second turn (one failed), and one that went on from the third of those."""

    def branched(number: int, origin: int, turn: int, made: Line) -> Line:
        made["info"]["branch"] = {"trace_id": f"{origin:032x}", "turn": turn, "digest": "0" * 64}
        return episode(number, "kept", made)

    lines = [episode(1, "kept", trace(1, 0.0))]
    lines += [branched(number, 1, 2, trace(number, float(number % 2))) for number in range(2, 6)]
    lines.append(branched(6, 1, 2, failed(6, "EnvError")))
    return [*lines, branched(7, 5, 3, trace(7, 1.0))]


def many(count: int, *, skill: float = 0.5, tasks: int = 100, turns: int = 3) -> Iterator[Line]:
    """So many rollouts of tasks of different difficulty; a policy of more `skill` passes more of them."""
    for number in range(count):
        task = number % tasks
        passes = random.Random(number + round(1e6 * skill)).random() < skill * 2 * (1 - task / tasks)
        yield episode(number, f"task-{task}", trace(number, float(passes), turns=turns))
