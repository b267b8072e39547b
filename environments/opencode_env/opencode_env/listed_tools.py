"""What an MCP server lists, and what its failures say."""

from mcp.client import Client
from mcp.types import Tool
from rollout_sandbox.told import first_error


async def all_tools(client: Client) -> list[Tool]:
    """Ask for every tool that a server lists, page by page."""
    tools: list[Tool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        if (cursor := page.next_cursor) is None:
            return tools


def described(error: BaseException) -> str:
    """Tell what an error says; of a group, its first error."""
    error = first_error(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
