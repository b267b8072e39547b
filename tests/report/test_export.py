"""Rollouts out of a run: trajectories in Harbor's form, and Markdown."""

from pathlib import Path
from typing import Any, Literal

import pytest
from opencode_runs.report.__main__ import main
from pydantic import BaseModel, ConfigDict, Field

from tests.report import made
from tests.trainable.graphs import answer, prompt


class Exact(BaseModel):
    """As Harbor's models: nothing but these fields."""

    model_config = ConfigDict(extra="forbid", strict=True)
    extra: dict[str, Any] | None = None


class ToolCall(Exact):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]


class Result(Exact):
    source_call_id: str | None = None
    content: str | None = None


class Observation(Exact):
    results: list[Result]


class Metrics(Exact):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None


class Step(Exact):
    step_id: int
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    message: str
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = Field(None, ge=0)


class Agent(Exact):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None


class FinalMetrics(Exact):
    total_prompt_tokens: int
    total_completion_tokens: int
    total_cached_tokens: int
    total_steps: int


class Trajectory(Exact):
    """The part of ATIF that is written, after Harbor 0.24's models."""

    schema_version: Literal["ATIF-v1.8"]
    session_id: str
    trajectory_id: str
    agent: Agent
    steps: list[Step] = Field(min_length=1)
    final_metrics: FinalMetrics

    def check(self) -> None:
        """What Harbor's validators ask for."""
        assert [step.step_id for step in self.steps] == list(range(1, len(self.steps) + 1))
        for step in self.steps:
            asked = {call.tool_call_id for call in step.tool_calls or ()}
            told = {result.source_call_id for result in step.observation.results} if step.observation else set()
            assert told <= asked | {None}
            if step.source != "agent":
                assert (step.reasoning_content, step.tool_calls, step.metrics) == (None, None, None)
            if step.llm_call_count == 0:
                assert (step.reasoning_content, step.metrics) == (None, None)


def exported(run: Path, folder: Path) -> dict[str, Trajectory]:
    """The trajectories of a run by id, each as Harbor would take it."""
    assert main(["export", str(run), "--atif", str(folder)]) == 0
    found = [Trajectory.model_validate_json(file.read_text()) for file in folder.glob("*.json")]
    for trajectory in found:
        trajectory.check()
    return {trajectory.trajectory_id: trajectory for trajectory in found}


def test_every_trace_is_a_trajectory_with_its_tokens(tmp_path: Path) -> None:
    lines = [*made.rich(), *made.every_outcome()]
    found = exported(made.write_run(tmp_path / "run", lines), tmp_path / "out")
    traces = [trace for line in lines for trace in line["traces"] if trace["nodes"]]
    assert {name.rpartition(".")[0] for name in found} == {trace["id"] for trace in traces}
    first = found[f"{1000:032x}.0"]
    assert [step.source for step in first.steps] == ["system", "user", "agent", "agent", "agent"]
    assert first.extra is not None
    assert (first.extra["reward"], first.extra["task"]) == (1.0, "fix-median")
    nodes = traces[0]["nodes"]
    seen: list[int] = []
    for step, answered in zip(first.steps[2:], (2, 4, 6), strict=True):
        metrics = step.metrics
        assert metrics is not None
        assert metrics.completion_token_ids == nodes[answered]["token_ids"][1:]
        assert metrics.logprobs == nodes[answered]["logprobs"]
        before = [token for node in nodes[:answered] for token in node["token_ids"]]
        assert metrics.prompt_token_ids == before + nodes[answered]["token_ids"][:1]
        seen += metrics.completion_token_ids or []
    assert first.final_metrics.total_completion_tokens == len(seen)
    edit = first.steps[3]
    assert edit.tool_calls is not None
    assert edit.observation is not None
    assert edit.tool_calls[0].arguments["filePath"] == "/app/stats.py"
    assert edit.observation.results[0] == Result(source_call_id="call_1", content="Edit applied successfully.")


def test_a_later_branch_says_what_it_copies(tmp_path: Path) -> None:
    found = exported(made.write_run(tmp_path / "run", [made.episode(1, "t", made.forked(1))]), tmp_path / "out")
    assert [step.is_copied_context for step in found[f"{1:032x}.1"].steps] == [True, True, True, None]


def test_broken_and_foreign_traces_are_written_as_far_as_they_go(tmp_path: Path) -> None:
    said = {"role": "assistant", "content": [{"type": "image_url"}], "tool_calls": [{"arguments": "{"}]}
    nodes = [prompt(None, 1, 2), answer(0, 3, head=(4,), logprobs=[float("nan")], message=said)]
    odd, broken = made.trace(1, nodes=nodes, calls=[], tools=None), made.trace(2, nodes=[prompt(5, 1)], calls=[])
    found = exported(made.write_run(tmp_path / "run", [made.episode(1, "t", odd, broken)]), tmp_path / "out")
    (only,) = found.values()
    step = only.steps[1]
    assert step.metrics is not None
    assert (step.message, step.metrics.logprobs) == ("[image_url]", None)
    assert step.tool_calls == [
        ToolCall(tool_call_id="call-1-0", function_name="None", arguments={}, extra={"raw_arguments": "{"})
    ]


def test_markdown_shows_one_rollout_with_keys_masked(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    trace = made.trace(7)
    key = "Bearer abc123def456ghi789"
    trace["nodes"][3]["message"] |= {"content": f"```\n{key}\n```" + "x" * 5000, "name": key}
    trace["info"]["verify"] = [
        {"command": "diff - a", "exit_code": 1, "stdout": f"< 41\n{key}\n", "stderr": "", "timed_out": False},
        {"command": "sleep 9", "exit_code": 143, "stdout": "", "stderr": "so far", "timed_out": True},
        "foreign",
    ]
    run = made.write_run(tmp_path / "run", [made.episode(1, "other", made.trace(1)), made.episode(7, "fix", trace)])
    assert main(["export", str(run), "--markdown", f"{7:032x}"[:32]]) == 0
    text = capfdbinary.readouterr().out.decode()
    assert text.startswith("# fix\n\n- reward: 1 (verify 1)\n")
    assert "abc123def456ghi789" not in text
    assert "````\n```\nBearer [masked]" in text
    assert "characters left out" in text
    assert '**edit**\n```\n{"filePath"' in text
    assert (
        "### verify command: exit code 1\n\n```\ndiff - a\n```\n\n```\n< 41\nBearer [masked]\n```\n\n### verify" in text
    )
    assert text.endswith("### verify command: timed out\n\n```\nsleep 9\n```\n\n```\nso far\n```\n")
    assert main(["export", str(run), "--markdown", "nobody"]) == 1
    assert "there are 00000000 (other), 00000000 (fix)" in capfdbinary.readouterr().err.decode()
    assert main(["export", str(run), "--markdown", "fix"]) == 0
    assert capfdbinary.readouterr().out.decode() == text


CONTROLS = "\x1b]0;owned\x07\x1b[2Jx\x9b31m\roverwritten\u202eturned"


def test_markdown_does_nothing_to_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = made.trace(7)
    trace["nodes"][3]["message"] |= {"content": f"seen\tline\r\n{CONTROLS}"}
    run = made.write_run(tmp_path / "run", [made.episode(7, f"fix{CONTROLS}", trace)])
    assert main(["export", str(run), "--markdown", f"{7:032x}"]) == 0
    text = capsys.readouterr().out
    assert "seen\tline\r\n\ufffd]0;owned\ufffd\ufffd[2Jx\ufffd31m\ufffdoverwritten\ufffdturned" in text
    assert not set(text) & set("\x1b\x07\x9b\u202e")
