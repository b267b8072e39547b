"""A small MCP server on stdin and stdout over a JSON search endpoint: `search` and `open`, both bounded.

It runs on the host as a tool backend (`--env.backends.file`), so its key never enters a sandbox.
"""

from opencode_search.endpoint import EndpointDown, Options, search
from opencode_search.pages import Unreadable, open_page, text_of

__all__ = ["EndpointDown", "Options", "Unreadable", "open_page", "search", "text_of"]
