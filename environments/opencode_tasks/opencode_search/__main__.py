"""`python -m opencode_search`: the server on stdin and stdout; its key is the variable SEARCH_API_KEY."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import fields

from mcp.server.mcpserver import MCPServer

from opencode_search.errors import SearchEndpointDown, UnreadablePage
from opencode_search.pages import open_page
from opencode_search.search_endpoint import SearchEndpoint, SearchOptions, place

_PAGES = 4
"""Pages that are read at once: each holds memory of this machine."""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m opencode_search", description=__doc__)
    for field in fields(SearchOptions):
        name = f"--{field.name.replace('_', '-')}"
        if isinstance(field.default, bool):
            parser.add_argument(name, action="store_true", help=field.metadata["help"])
        else:
            shown = f"{field.metadata['help']} (default: {field.default or 'none'})"
            parser.add_argument(name, type=type(field.default), default=field.default, help=shown)
    return parser


def make_server(options: SearchOptions) -> MCPServer:
    server, endpoint = MCPServer("search", log_level="ERROR"), SearchEndpoint(options)
    pages = asyncio.Semaphore(_PAGES)

    @server.tool(name="search")
    async def ask(query: str, count: int = 10) -> str:
        """Search the web. Gives up to 10 results: title, address, and a piece of text."""
        try:
            return await endpoint.search(query, count)
        except SearchEndpointDown as error:
            print(error, file=sys.stderr, flush=True)  # noqa: T201
            os._exit(1)  # which the environment tells as an error of the rollout

    @server.tool(name="open")
    async def read(url: str, start: int = 0) -> str:
        """Read a web page as text. A long one comes in parts: `start` is the character to go on from."""
        try:
            async with place(pages):
                return await open_page(url, start, private=options.allow_private)
        except UnreadablePage as error:
            raise ValueError(str(error)) from error

    return server


def main(arguments: Sequence[str] | None = None) -> None:
    make_server(SearchOptions(**vars(build_parser().parse_args(arguments)))).run("stdio")


if __name__ == "__main__":
    main()
