"""Parity of a simulation with production: what differs is found and named, what means the same is the same."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from opencode_simulation import SignatureMismatchError, ToolMismatchError, World, check_parity, tool
from opencode_simulation.parity import (
    ListedTool,
    differences,
    list_tools,
    require_parity,
    signature_of,
    write_snapshot,
)
from pydantic import BaseModel, Field

Schema = dict[str, Any]


class Address(BaseModel):
    """Where to."""

    street: str
    zip: int = Field(description="Five digits")
    tags: list[str] = []


class Shop(World):
    """A shop."""

    @tool
    def order(self, item: str, count: int = 1, size: str | None = None) -> int:
        """Order something."""
        return count

    @tool
    def send(self, to: Address, speed: float, insured: bool = False) -> str:
        """Send an order."""
        return to.street

    @tool
    def status(self) -> str:
        """The state of all orders."""
        return "sent"


def production() -> MCPServer[Any]:
    """The same tools as a server of its own."""
    server: MCPServer[Any] = MCPServer("shop")

    @server.tool()
    def order(item: str, count: int = 1, size: str | None = None) -> int:
        """Order something."""
        return count

    @server.tool()
    async def send(to: Address, speed: float, insured: bool = False) -> str:
        """Send an order."""
        return to.street

    @server.tool()
    def status() -> str:
        """The state of all orders."""
        return "sent"

    return server


Change = Callable[[list[Schema]], object]
Changed = Callable[..., Path]


@pytest.fixture
async def changed(tmp_path: Path) -> Changed:
    """Changes the tools of production, and writes a snapshot of them; gives its path."""
    tools = [listed.model_dump() for listed in await list_tools(production())]

    def write(*changes: Change) -> Path:
        for change in changes:
            change(tools)
        path = tmp_path / "tools.json"
        path.write_text(json.dumps(tools))
        return path

    return write


async def test_a_world_and_a_server_with_the_same_tools_are_the_same() -> None:
    await check_parity(Shop, production(), descriptions=True)


def order(tools: list[Schema]) -> Schema:
    found: Schema = tools[0]["parameters"]
    return found


def address(tools: list[Schema]) -> Schema:
    found: Schema = tools[1]["parameters"]["$defs"]["Address"]
    return found


def send(tools: list[Schema]) -> Schema:
    found: Schema = tools[1]["parameters"]
    return found


def renamed(schema: Schema, old: str, new: str) -> None:
    """Another name for a parameter, at its place."""
    schema["properties"] = {new if name == old else name: entry for name, entry in schema["properties"].items()}
    schema["required"] = [new if name == old else name for name in schema.get("required", [])]


def turned(schema: Schema) -> None:
    schema["properties"] = dict(reversed(schema["properties"].items()))


Place = Callable[[list[Schema]], Schema]
PLACES: dict[Place, str] = {
    order: '"order": parameter "{}"',
    send: '"send": parameter "{}"',
    address: '"send": parameter "to".{}',
}


def other(place: Place, name: str, told: str, **fields: Any) -> tuple[Change, str]:
    """A parameter with other fields in its schema, and what is told of it, which begins with its place."""

    def change(tools: list[Schema]) -> None:
        place(tools)["properties"][name].update(fields)

    return change, PLACES[place].format(name) + told


TOOLS: dict[str, tuple[Change, str]] = {
    "a tool renamed": (lambda t: t[0].update(name="orders"), 'tool "orders": missing .*which has "order"'),
    "a tool gone": (lambda t: t.pop(2), 'tool "status": not in production'),
    "a tool more": (lambda t: t.append({**t[2], "name": "refund"}), 'tool "refund": missing in the simulation'),
    "a tool in other letters": (lambda t: t[2].update(name="Status"), 'tool "Status": missing'),
}
SIGNATURES: dict[str, tuple[Change, str]] = {
    "a parameter renamed": (lambda t: renamed(order(t), "item", "product"), '"order": parameter "product": missing'),
    "a parameter gone": (lambda t: order(t)["properties"].pop("size"), '"order": parameter "size": not in production'),
    "a parameter more": (
        lambda t: order(t)["properties"].update(gift={"type": "boolean"}),
        '"order": parameter "gift": missing in the simulation',
    ),
    "another order": (
        lambda t: turned(order(t)),
        '"order": order of parameters: item, count, size; in production size',
    ),
    "another type": other(order, "item", ".type: string; in production integer", type="integer"),
    "a number for a whole one": other(order, "count", ".type: integer; in production number", type="number"),
    "null refused": (lambda t: order(t)["properties"].update(size={"type": "string"}), '"order": parameter "size"'),
    "required": (lambda t: order(t)["required"].append("count"), '"count": optional; in production required'),
    "optional": (lambda t: order(t)["required"].remove("item"), '"item": required; in production optional'),
    "another default": other(order, "count", ": default 1; in production 2", default=2),
    "no default": (lambda t: order(t)["properties"]["count"].pop("default"), "default 1; in production '.none.'"),
    "a default of another type": other(send, "insured", ": default False; in production 0", default=0),
    "a nested type": other(address, "zip", ".type: integer; in production string", type="string"),
    "a nested name": (lambda t: renamed(address(t), "zip", "code"), 'parameter "to".code: .none.; in production'),
    "nested and required": (
        lambda t: address(t)["required"].append("tags"),
        r'parameter "to".required: \[.street., .zip.\]; in production \[.street., .tags., .zip.\]',
    ),
    "nested items": other(address, "tags", ".items.type: string; in production number", items={"type": "number"}),
    "an enum": other(order, "item", r".enum: .none.; in production \[.cup., .tea.\]", enum=["tea", "cup"]),
    "a pattern": other(order, "item", ".pattern: .none.; in production .t", pattern="^t"),
    "a bound": other(order, "count", ".minimum: .none.; in production 1", minimum=1),
    "a format": other(order, "item", ".format: .none.; in production uuid", format="uuid"),
}
DESCRIPTIONS: dict[str, tuple[Change, str]] = {
    "of a tool": (
        lambda t: t[2].update(description="Another."),
        'tool "status": description: .*in production .Another',
    ),
    "of a parameter": other(order, "item", ": description .*in production .What", description="What"),
    "inside a parameter": other(
        address, "zip", ".description: Five digits; in production Six digits", description="Six digits"
    ),
    "of a nested schema": (
        lambda t: address(t).update(description="From where"),
        '"send": parameter "to": description .Where to.*in production .From where',
    ),
}


@pytest.mark.parametrize(("change", "message"), TOOLS.values(), ids=TOOLS)
async def test_other_tools_are_a_tool_mismatch(change: Change, message: str, changed: Changed) -> None:
    with pytest.raises(ToolMismatchError, match=message):
        await check_parity(Shop, changed(change))


@pytest.mark.parametrize(("change", "message"), SIGNATURES.values(), ids=SIGNATURES)
async def test_other_parameters_are_a_signature_mismatch(change: Change, message: str, changed: Changed) -> None:
    with pytest.raises(SignatureMismatchError, match=message):
        await check_parity(Shop, str(changed(change)))


@pytest.mark.parametrize(("change", "message"), DESCRIPTIONS.values(), ids=DESCRIPTIONS)
async def test_descriptions_are_compared_on_request(change: Change, message: str, changed: Changed) -> None:
    path = changed(change)
    await check_parity(Shop, path)
    with pytest.raises(SignatureMismatchError, match=message):
        await check_parity(Shop, path, descriptions=True)


def inlined(tools: list[Schema]) -> None:
    """The nested schema in its place."""
    schema = send(tools)
    schema["properties"]["to"] = schema.pop("$defs")["Address"]


SAME: dict[str, Change] = {
    "titles": lambda t: order(t).update(title="Order"),
    "a nested schema in its place": inlined,
    "a definition of another name": lambda t: send(t).update(
        {"$defs": {"A": address(t)}, "properties": {**send(t)["properties"], "to": {"$ref": "#/$defs/A"}}}
    ),
    "further keys refused": lambda t: order(t).update({"additionalProperties": False, "$schema": "draft"}),
    "required in another order": lambda t: send(t)["required"].reverse(),
    "white space in a description": lambda t: t[2].update(description="The state\n  of all orders. "),
    "the tools in another order": lambda t: t.reverse(),
    "null left out": lambda t: order(t)["properties"]["size"].pop("default"),
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
async def test_another_spelling_of_the_same_is_the_same(change: Change, changed: Changed) -> None:
    await check_parity(Shop, changed(change), descriptions=True)


def apart(ours: Schema, theirs: Schema, **rest: Any) -> list[str]:
    """The differences of a tool whose one parameter has these schemas; `rest` stands beside the parameters."""
    one, other = (
        signature_of(ListedTool(name="t", parameters={"properties": {"p": schema}, **rest}))
        for schema in (ours, theirs)
    )
    return list(differences(one, other, descriptions=False))


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
A_AND_B = {"$defs": {"a/b c": {"type": "string"}, "Node": NODE}, "choices": [{"type": "string"}]}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"const": "a"}, {"enum": ["a"]}),
        ({"type": ["null", "string"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"allOf": [{"$ref": "#/$defs/a~1b%20c"}], "maxLength": 3}, {"type": "string", "maxLength": 3}),
        ({"$ref": "#/choices/0"}, {"type": "string"}),
        ({"$ref": "#/$defs/Node"}, {"$ref": "#/$defs/Node", "title": "N"}),
        ({"$ref": "elsewhere.json"}, {"$ref": "elsewhere.json"}),
    ],
)
def test_ways_to_write_one_schema_are_one(ours: Schema, theirs: Schema) -> None:
    assert apart(ours, theirs, **A_AND_B) == []


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"$ref": "one.json"}, {"$ref": "other.json"}),
        ({"$ref": "#/$defs/Gone"}, {}),
        ({"const": None}, {}),
        ({"const": {"title": "a"}}, {"const": {"title": "b"}}),
        ({"patternProperties": {"title": {"type": "string"}}}, {"patternProperties": {}}),
        ({"$ref": "#/$defs/Node"}, {"type": "object", "properties": {"next": {"type": "object"}}}),
        ({"anyOf": [{"type": "string"}, {"type": "null", "title": "N"}]}, {"type": "string"}),
    ],
)
def test_schemas_that_mean_something_else_are_apart(ours: Schema, theirs: Schema) -> None:
    assert apart(ours, theirs, **A_AND_B) != []


def test_parameters_behind_a_reference_are_parameters() -> None:
    whole = {"type": "object", "properties": {"p": {"type": "string", "default": "x"}}, "required": ["p"]}
    behind = {"$ref": "#/$defs/Arguments", "$defs": {"Arguments": whole}}
    signatures = [signature_of(ListedTool(name="t", parameters=schema)) for schema in (whole, behind)]
    assert signatures[0] == signatures[1]
    assert list(signatures[1].parameters) == ["p"]


async def test_all_that_differs_is_in_one_message(changed: Changed) -> None:
    path = changed(SIGNATURES["another type"][0], TOOLS["a tool more"][0])
    with pytest.raises(ToolMismatchError) as caught:
        await check_parity(Shop, path)
    assert len(str(caught.value).splitlines()) == 3


def test_a_world_that_names_its_production_server_is_held_to_it(tmp_path: Path) -> None:
    class Stale(Shop):
        PRODUCTION = "tests.simulation.test_parity:OTHER"

    class Fresh(Shop):
        PRODUCTION = "tests.simulation.test_parity:SERVER"

    require_parity(Shop)
    require_parity(Fresh)
    with pytest.raises(ToolMismatchError, match='tool "status": not in production'):
        require_parity(Stale)


SERVER = production()
OTHER = production()
OTHER.remove_tool("status")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("no-such", "write a URL, stdio:PROGRAM, module:name"),
        ("nowhere.json", "nowhere.json cannot be read"),
        ("tests.simulation.test_parity:NOTHING", "cannot be imported"),
        ("tests.simulation.test_parity:order", "neither an MCP server object nor a world"),
        ("http://127.0.0.1:9/mcp", "does not list its tools"),
        ("stdio:false", "does not list its tools"),
    ],
)
async def test_a_production_that_cannot_be_asked_says_why(reference: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        await check_parity(Shop, reference)


async def test_a_file_that_is_no_snapshot_names_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text('[{"name": "a"}]')
    with pytest.raises(ValueError, match=r"0\.parameters: Field required"):
        await check_parity(Shop, path)


THIRD_PARTY = "stdio:npx -y @modelcontextprotocol/server-memory@2025.9.25"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npx") is None, reason="needs npx")
async def test_a_third_party_server_is_compared_live_and_by_its_snapshot(tmp_path: Path) -> None:
    """The knowledge-graph memory server of the Model Context Protocol's authors, from npm."""
    tools = await list_tools(THIRD_PARTY)
    names = [listed.name for listed in tools]
    assert {"create_entities", "read_graph", "search_nodes"} <= set(names)
    path = tmp_path / "memory.json"
    write_snapshot(tools, path)
    await check_parity(path, THIRD_PARTY, descriptions=True)
    with pytest.raises(ToolMismatchError, match='tool "create_entities": missing in the simulation'):
        await check_parity(Shop, path)

    class Search(World):
        @tool
        def search_nodes(self, query: int) -> str:
            """Search."""
            return str(query)

    one = tmp_path / "one.json"
    write_snapshot([listed for listed in tools if listed.name == "search_nodes"], one)
    with pytest.raises(SignatureMismatchError, match=r'"search_nodes": parameter "query"\.type: integer; in'):
        await check_parity(Search, one)
