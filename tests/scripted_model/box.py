"""A confined sandbox that sample tasks run in: their setup, the tool calls of a solution, their checks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import verifiers.v1 as vf
from mathverdict.verdict import Source, verify_text
from opencode_env.scripted_model import Reply, ToolCall
from opencode_rubrics import AnyTrace, VerifyCommandsConfig, VerifyCommandsRubric
from rollout_sandbox.confined import LocalSandboxConfig, provision_confined

from tests.rubrics.conftest import CheckedData, trace_of
from tests.support.sample_rows import SampleRow


@dataclass
class Box:
    """A sandbox in which a solution is played."""

    runtime: vf.Runtime
    reply: str = ""
    """The last word of the solution."""

    async def sh(self, command: str) -> vf.ProgramResult:
        """Run a shell command in /app."""
        return await self.runtime.run(["sh", "-c", command], {})

    async def begin(self, sample: SampleRow) -> None:
        """Run the sample's setup commands in an empty /app."""
        self.reply = ""
        for command in ("find . -mindepth 1 -delete", *sample.setup):
            done = await self.sh(command)
            assert done.exit_code == 0, done.stderr

    async def play(self, steps: tuple[Reply, ...]) -> None:
        """Carry out the tool calls of a solution."""
        for step in steps:
            for call in step.tool_calls:
                await self._carry_out(call)
        self.reply = steps[-1].text

    async def write(self, path: str, text: str) -> None:
        """Write a file, as the agent does."""
        await self.runtime.write(path, text.encode())

    async def _carry_out(self, call: ToolCall) -> None:
        assert isinstance(call.arguments, dict)
        given = {name: value if isinstance(value, str) else "" for name, value in call.arguments.items()}
        if call.name == "bash":
            await self.sh(given["command"])
        elif call.name == "write":
            await self.write(given["filePath"], given["content"])
        elif call.name == "edit":
            text = (await self.runtime.read(given["filePath"])).decode()
            everywhere = call.arguments.get("replaceAll", False)
            assert text.count(given["oldString"]) == 1 or (everywhere and given["oldString"] in text)
            await self.write(given["filePath"], text.replace(given["oldString"], given["newString"]))
        elif call.name == "read":
            assert await self.runtime.read(given["filePath"]) is not None
        else:
            assert call.name in ("grep", "glob")

    async def reward(self, sample: SampleRow) -> float:
        """What the verify commands give by their rubric, or whether the answer is right."""
        if sample.verify:
            return (await self.scored(sample)).reward
        source: Source = "reply" if sample.rubric and sample.rubric["type"] == "hybrid-math" else "file"
        shown = await self.sh("cat answer.txt")
        given = self.reply if source == "reply" else shown.stdout if shown.exit_code == 0 else None
        if sample.rubric is not None:
            return float(given is not None and verify_text(sample.answer or "", given, source).right)
        return float(given is not None and given.strip() == sample.answer)

    async def scored(self, sample: SampleRow) -> AnyTrace:
        """The trace that the sample's verify commands score, by the rubric of its row."""
        config = VerifyCommandsConfig.model_validate(sample.rubric or {})
        trace = trace_of(CheckedData(prompt=sample.question, verify=list(sample.verify)))
        await VerifyCommandsRubric(config).score(trace.task.data, trace, self.runtime)
        return trace


@asynccontextmanager
async def prepared_for(sample: SampleRow) -> AsyncIterator[Box]:
    """A fresh box in which the setup commands of the sample have run."""
    async with provision_confined(LocalSandboxConfig()) as runtime:
        box = Box(runtime)
        await box.begin(sample)
        yield box
