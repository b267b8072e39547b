"""A policy that calls any offered tool with arguments that its schema allows, so that an author can play any world."""

import random
from pathlib import Path
from typing import Any, Literal

import jsonschema  # type: ignore[import-untyped]
import pytest
from mcp.client.client import Client
from opencode_env.scripted_model import ChatRequest, ScriptPolicy, ToolsPolicy
from opencode_env.scripted_model.policy import ChatBody
from opencode_env.scripted_model.shipped_policies import value_of
from opencode_simulation.alone import WorldAlone
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.reference import SAMPLES, find_world
from pydantic import BaseModel, Field, TypeAdapter


class Leaf(BaseModel):
    kind: Literal["leaf"]
    size: float = Field(gt=0, lt=1)


class Tree(BaseModel):
    """Holds itself."""

    name: str = Field(max_length=4)
    left: "Tree | Leaf | None" = None
    others: list["Tree"] = Field(max_length=2)
    tags: set[Literal["a", "b", "c"]] = Field(min_length=2)


SCHEMAS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a tree": Tree.model_json_schema(),
    "a union": TypeAdapter(int | str | None | list[tuple[int, str]]).json_schema(),
    "bounds": {"type": "integer", "exclusiveMinimum": 3, "maximum": 5},
    "far bounds": {"type": "number", "minimum": -1e9, "exclusiveMaximum": -1e8},
    "only a top": {"type": "integer", "maximum": -7},
    "a long text": {"type": "string", "minLength": 30, "maxLength": 31},
    "a short text": {"type": "string", "maxLength": 2},
    "a format": {"type": "string", "format": "date"},
    "a constant": {"const": {"a": [1]}},
    "several types": {"type": ["null", "boolean", "array"], "items": {"enum": [1, "x"]}},
    "all of": {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"required": ["a"]}]},
    "a required key without a schema": {"type": "object", "required": ["x"], "additionalProperties": False}
    | {"properties": {"x": True, "y": {"type": "null"}}},
    "a reference": {"$defs": {"a/b": {"type": "array", "minItems": 2}}, "$ref": "#/$defs/a~1b"},
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_what_is_made_of_a_schema_is_valid_by_it(case: str) -> None:
    schema = SCHEMAS[case]
    validator = jsonschema.validators.validator_for(schema)(schema, format_checker=jsonschema.FormatChecker())
    for seed in range(200):
        value = value_of(schema, random.Random(seed))
        assert list(validator.iter_errors(value)) == [], value


def request(tools: dict[str, Any], turn: int, prompt: str = "Play.") -> ChatRequest:
    """A request at some turn that offers tools."""
    told = [{"role": "user", "content": prompt}, *[{"role": "assistant", "content": "So."}] * turn]
    offered = [{"function": {"name": name, "parameters": schema}} for name, schema in tools.items()]
    return ChatRequest(ChatBody.model_validate({"messages": told, "tools": offered}), {}, 0)


def test_the_same_conversation_is_played_the_same_and_another_seed_otherwise() -> None:
    tools = {"shop_sell": SCHEMAS["a tree"], "shop_buy": {}, "bash": {}}
    asked = [request(tools, turn, prompt) for prompt in ("Play.", "Go.") for turn in range(5)]
    first = [ToolsPolicy("shop_*")(one) for one in asked]
    assert first == [ToolsPolicy("shop_*")(one) for one in asked]
    assert first != [ToolsPolicy("shop_*", seed=1)(one) for one in asked]
    assert {call.name for reply in first for call in reply.tool_calls} == {"shop_sell", "shop_buy"}
    assert ToolsPolicy("shop_*", turns=4)(asked[4]).tool_calls == ()
    assert "none of the tools" in ToolsPolicy("lake_*")(asked[0]).text


@pytest.mark.parametrize("name", SAMPLES)
async def test_a_world_takes_what_the_policy_calls(name: str) -> None:
    policy = ToolsPolicy(turns=40)
    async with WorldAlone(find_world(name), EpisodeSpec(seed=3)) as world, Client(world.server()) as client:
        tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        for turn in range(40):
            (call,) = policy(request(tools, turn)).tool_calls
            assert isinstance(call.arguments, dict)
            answer = await client.call_tool(call.name, call.arguments)
            assert "validation error" not in str(answer.content)
    assert world.ledger.summary.steps + world.episode.refused == 40
    assert world.ledger.summary.error is None


def test_a_fixed_script_of_the_documents_plays(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/tutorials/write-a-world.md").read_text()
    script = page.partition("$ cat > script.json <<'END'\n")[2].partition("\nEND\n")[0]
    path = tmp_path / "script.json"
    path.write_text(script)
    policy = ScriptPolicy.load(path)
    offered: dict[str, Any] = {"shop_sell": {}}
    first = policy(request(offered, 0, "Sell everything. 4 apples are left."))
    assert [(call.name, call.arguments) for call in first.tool_calls] == [("shop_sell", {"count": 2})]
    assert policy(request(offered, 2, "Sell everything. 4 apples are left.")).text
