"""The documents say of which agents each metric is."""

import re
from pathlib import Path

from opencode_env.agents.opencode.config import BUILT_IN_TOOLS
from opencode_env.agents.opencode.harness import rollout_metrics
from opencode_env.cli_agent.guard import agent_metrics
from opencode_env.cli_agent.traces import AnyTrace
from verifiers.v1 import AgentConfig, TaskData
from verifiers.v1.graph import MessageNode
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.trace import AgentInfo, Trace, TraceTask
from verifiers.v1.types import Tool, UserMessage

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "rewards.md").read_text()
OF_RUBRICS = {"verify_passed", "verify_total"}
WHERE_TOLD = {"spelled_calls"}


def named(text: str) -> set[str]:
    """The metrics that a text names."""
    names = set(re.findall(r"`([^`]+)`", text))
    of_tools = {f"{tool}_calls" for tool in BUILT_IN_TOOLS} if "<tool>_calls" in names else set()
    return names - {"<tool>_calls"} | of_tools


def test_a_metric_is_every_agents_or_is_named_as_opencodes() -> None:
    (exceptions,) = re.findall(r"Every agent has these metrics, except (.*?), which only OpenCode has\.", PAGE)
    listed = named(" ".join(re.findall(r"^\| (`.*?) \| metric \|", PAGE, re.MULTILINE)))
    task: TraceTask[TaskData] = TraceTask(type="Task", data=TaskData(idx=0, prompt="x"))
    config = AgentConfig(harness=NullHarnessConfig(id="null"))
    trace: AnyTrace = Trace(task=task, agent=AgentInfo(config=config))
    every = agent_metrics(trace, None).keys()
    assert rollout_metrics(trace).keys() == {"history_forks", "compactions", "section_tokens_max"}
    offered = [Tool(name=name, description="", parameters={}) for name in BUILT_IN_TOOLS]
    trace.nodes.append(MessageNode(message=UserMessage(content="x"), tools=offered))
    assert named(exceptions) == rollout_metrics(trace).keys()
    assert listed == every | named(exceptions) | OF_RUBRICS | WHERE_TOLD
