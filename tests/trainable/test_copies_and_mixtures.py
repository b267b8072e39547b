"""Between traces: one that stands twice, and groups whose rollouts are not of one task, model and sampling."""

import json
from pathlib import Path
from typing import Any

import pytest
from opencode_runs.trainable.__main__ import main

from tests.difficulty.lines import episode, write_run
from tests.trainable.doctored import group, nodes, trace
from tests.trainable.graphs import Line, calls


def check(folder: Path, lines: list[Line], *options: str) -> int:
    """The exit code for a run of these episodes."""
    return main([str(write_run(folder / "run", lines)), "--check", *options])


def seated(model: str = "small", temperature: float = 0.7, weight: float = 1.0, **sampling: Any) -> Line:
    """A sound trace of a model and its sampling."""
    config = {"model": model, "sampling": {"temperature": temperature, **sampling}}
    return trace(
        agent={"name": "agent", "trainable": True, "config": config},
        calls=calls(nodes(), model, temperature),
        rewards={"correct": {"score": 1.0, "weight": weight}},
    )


def pair(*traces: Line, **changes: Any) -> list[Line]:
    """A group of these rollouts; the last episode is changed."""
    lines = [episode("half", found, task_id="half") for found in traces]
    lines[-1] = lines[-1] | changes
    return lines


def other_task(**changes: Any) -> Line:
    """The task of an episode, changed."""
    task: Line = episode("half", task_id="half")["task"]
    return {"task": task | changes}


DISPATCHED = {"group": {"id": "one"}}
MIXED: dict[str, tuple[list[Line], str]] = {
    "models": (pair(seated(), seated("large")), '2 models of seat "agent": small, large'),
    "temperatures": (pair(seated(), seated(temperature=1.0)), '2 values of temperature of seat "agent": 0.7, 1'),
    "templates": (
        pair(seated(), seated(chat_template_kwargs={"enable_thinking": False})), "2 values of chat_template_kwargs",
    ),
    "shortest answers": (pair(seated(), seated(min_tokens=5)), '2 values of min_tokens of seat "agent": None, 5'),
    "weights": (pair(seated(), seated(weight=2.0)), '2 weights of the reward "correct" of seat "agent": 1, 2'),
    "contents": (
        pair(trace(0.0), trace(), **other_task(data={"id": "half", "prompt": "another one"})),
        "2 contents of the task",
    ),
    "numbers of one hash": (
        pair(*(trace(float(n), task={"key": "half", "data": {"prompt": "x", "right": [-1 - n]}}) for n in range(2))),
        '2 contents of the task of seat "agent"',
    ),
    "hashes": (pair(trace(0.0), trace(), **other_task(hash="other")), "2 hashes of row None: contents of the task"),
    "contents of a seat's task": (
        pair(*(trace(float(n), task={"key": "half", "data": {"prompt": n}}) for n in range(2))),
        '2 contents of the task of seat "agent"',
    ),
    "tasks of a seat": (
        pair(*(trace(float(n), task={"key": f"{n}", "data": {"prompt": n}}) for n in range(2))),
        '2 tasks of seat "agent": 0, 1',
    ),
    "tasks": (
        [line | DISPATCHED for line in (*group(0), *group(1, key="other"))], "2 tasks: half, other",
    ),
    "environments": (
        [line | DISPATCHED for line in pair(trace(0.0), trace(), env={"id": "another"})],
        "2 environments: probe, another",
    ),
    "seats that train": (
        pair(trace(0.0), trace(agent={"name": "agent", "trainable": False, "config": {"model": "small"}})),
        '2 answers to whether seat "agent" trains: True, False',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "said"), MIXED.values(), ids=MIXED)
def test_a_group_of_several_kinds_fails_and_is_named(
    lines: list[Line], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, lines) == 1
    printed = capsys.readouterr()
    assert printed.err == "opencode-trainable: a trainer must not use this: mixed\n"
    assert f"  half: {said}" in printed.out
    assert check(tmp_path, lines, "--allow", "mixed") == 0


SOUND: dict[str, list[Line]] = {
    "one temperature, spelled in two ways": pair(seated(temperature=1), seated(temperature=1.0)),
    "seeds of their own": pair(seated(seed=1), seated(seed=2)),
    "groups of several models": [*pair(seated(), seated()), *group(0, 1, key="other")],
    "seats of several temperatures": pair(
        *({**found, "agent": {**found["agent"], "name": name}} for name, found in (
            ("agent", seated()), ("sub", seated("large", 1.0)),
        )),
    ),
    "a failed rollout of another model": pair(
        seated(), seated("large") | {"ok": False, "rewards": {}, "errors": [{"type": "ProviderError"}]}, ok=False,
    ),
    "rows that were numbered anew": pair(
        trace(0.0), trace(), **other_task(data={"id": "half", "idx": 7, "prompt": "the prompt of half"}, hash="other"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("lines", SOUND.values(), ids=SOUND)
def test_a_group_of_one_kind_passes(lines: list[Line], tmp_path: Path) -> None:
    assert check(tmp_path, lines) == 0


def at(when: float, reward: float = 1.0) -> Line:
    """A sound trace that was made at a time."""
    return trace(reward, nodes=[node | {"timestamp": when + number} for number, node in enumerate(nodes())])


def test_a_trace_that_stands_in_two_episodes_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied = trace()
    assert check(tmp_path, [*group(0), episode("half", copied), episode("half", json.loads(json.dumps(copied)))]) == 1
    assert f"trace {copied['id']} (the prompt of half): another trace has the same id" in capsys.readouterr().out


def test_a_conversation_that_stands_in_two_traces_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [episode("half", at(100.5)), episode("half", at(100.5, 0.0)), episode("half", at(200.5, 0.0))]
    assert check(tmp_path, lines) == 1
    assert f"trace {lines[1]['traces'][0]['id']} (the prompt of half): an answer of one mo" in capsys.readouterr().out
    assert check(tmp_path, [lines[0], lines[2]]) == 0


def test_an_episode_that_stands_twice_in_a_run_fails_and_a_run_that_is_named_twice_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = group(0, 1)
    runs = [write_run(tmp_path / name, lines) for name in ("one", "two")]
    assert main([*map(str, runs), "--check"]) == 0
    assert check(tmp_path, [*lines, lines[0]]) == 1
    assert f'  "{tmp_path}/run/traces.jsonl": 1 episodes' in capsys.readouterr().out


def test_copies_are_found_across_the_runs_that_were_named(tmp_path: Path) -> None:
    copied = trace()
    runs = [write_run(tmp_path / name, [episode("half", copied)]) for name in ("one", "two")]
    assert main([*map(str, runs), "--check"]) == 1
