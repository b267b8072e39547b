"""A small MCP server on stdin and stdout over a JSON search endpoint: `search` and `open`, both bounded.

It runs on the host as a tool backend (`--env.backends.file`), so its key never enters a sandbox.
"""

from opencode_search.errors import SearchEndpointDown, UnreadablePage
from opencode_search.pages import open_page, text_of
from opencode_search.search_endpoint import SearchEndpoint, SearchOptions

__all__ = ["SearchEndpoint", "SearchEndpointDown", "SearchOptions", "UnreadablePage", "open_page", "text_of"]
