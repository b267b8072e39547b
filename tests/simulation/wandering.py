"""Random players of the shipped worlds, and what their calls give in a world alone."""

import random
from collections.abc import Iterable
from typing import Any

from mcp.server.mcpserver.tools import Tool
from opencode_env.scripted_model.shipped_policies import value_of
from opencode_simulation.alone import WorldAlone
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.errors import CallRefused
from opencode_simulation.ledger import FINISH, Ledger
from opencode_simulation.mcp_tools import nobody, signed_tool
from opencode_simulation.reference import find_world
from opencode_simulation.world import TOOL_NAME, declared

Call = tuple[str, dict[str, Any]]

_LABELS = ("bug", "feature", "parser", "no such label")
_PEOPLE = ("ada", "bela", "chen", "dora", "emil", "nobody of that name", None)


def random_call(world: str, source: random.Random) -> Call:
    """One call of a shipped world's tools, which the world need not accept: as their schemas allow, or of calls that
    change more of it."""
    if world == "order-desk":
        found = {"customer": source.choice(("Ada", "Bela", "nobody of that name"))}
        order = {"number": source.randint(1000, 9999)}
        made: list[Call] = [("find_orders", found), ("cancel_order", order), ("accept_return", order)]
        return source.choice(made)
    if world != "issue-tracker":
        name, tool = source.choice([*declared(find_world(world), TOOL_NAME).items()])
        return name, value_of(Tool.from_function(signed_tool(name, tool, nobody)).parameters, source)
    number, labels = source.randint(1, 18), source.sample(_LABELS, source.randint(0, 2))
    calls: list[Call] = [
        ("list_issues", {"state": source.choice(("open", "closed")), "label": source.choice((None, *_LABELS))}),
        ("get_issue", {"number": number}),
        ("search_issues", {"text": source.choice(("slow", "PARSER", "é"))}),
        ("list_people", {}),
        ("create_issue", {"title": f"new {number}", "body": "", "labels": labels}),
        ("comment_issue", {"number": number, "text": f"see #{number}"}),
        ("label_issue", {"number": number, "add": labels, "remove": ["question"]}),
        ("assign_issue", {"number": number, "assignee": source.choice(_PEOPLE)}),
        ("close_issue", {"number": number, "reason": source.choice(("done", "stale", "duplicate"))}),
        ("close_issue", {"number": number, "reason": "duplicate", "duplicate_of": source.randint(1, 18)}),
    ]
    return ("finish", {"summary": "so"}) if source.random() < 0.05 else source.choice(calls)


async def played_alone(world: str, spec: EpisodeSpec, calls: Iterable[Call]) -> Ledger:
    """The ledger of these calls in a world of this process, as far as the episode goes."""
    async with WorldAlone(find_world(world), spec) as alone:
        for tool, arguments in calls:
            if tool == FINISH:
                break
            try:
                await alone.episode.call(tool, arguments)
            except CallRefused:
                continue
        await alone.episode.finish()
        alone.ledger.summary.refused = alone.episode.refused
        return alone.ledger
