"""Answers scored by code tests in each place where programs can run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import verifiers.v1 as vf
from agent_sandbox.toolbox.scoring import BoxOrder, Scoring, attach
from opencode_env.taskset import OpenCodeTaskData
from opencode_rubrics import AnyTrace, CodeTest, CodeTests, CodeTestsConfig, CodeTestsRubric

from tests.rubrics.conftest import trace_of
from tests.support.places import podman_box


def problem(*pairs: tuple[Any, Any], function: str | None = None) -> OpenCodeTaskData:
    """A task with these inputs and outputs."""
    tests = [CodeTest(input=given, output=expected) for given, expected in pairs]
    return OpenCodeTaskData(
        prompt="?", workdir="/app", code_tests=CodeTests(function=function, tests=tests, total=len(tests))
    )


class Scorer:
    """Scores answers in one sandbox of the agent's, where every spare box is one and the same container."""

    def __init__(self, box: vf.Runtime, spare: vf.Runtime) -> None:
        self.box = box
        self._spare = spare

    async def __call__(self, code: str, data: OpenCodeTaskData, name: str = "answer.py", **options: Any) -> AnyTrace:
        await self.box.write(f"/app/{name}", code.encode())
        return await self.untouched(data, answer_path=name, **options)

    async def untouched(self, data: OpenCodeTaskData, **options: Any) -> AnyTrace:
        """The trace of scoring what is there."""
        trace = trace_of(data)

        @asynccontextmanager
        async def spare(order: BoxOrder) -> AsyncIterator[vf.Runtime]:
            yield self._spare

        attach(Scoring(spare), trace)
        await CodeTestsRubric(CodeTestsConfig(**options)).score(data, trace, self.box)
        return trace


@asynccontextmanager
async def in_containers(image: str) -> AsyncIterator[Scorer]:
    """A container for the agent, which is root there, and one for programs."""
    async with podman_box(image) as box, podman_box(image) as spare:
        yield Scorer(box, spare)


def reasons(trace: AnyTrace) -> list[str]:
    """What became of each test."""
    return [record["reason"] for record in trace.info["code_tests"]]
