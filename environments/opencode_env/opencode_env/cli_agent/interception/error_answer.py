"""The answer to a request that is not served, in the words of its wire format."""

from typing import Any

from agent_sandbox.verifiers_versions import error_body
from aiohttp import web
from verifiers.v1.dialects import Dialect


def error_answer(dialect: Dialect[Any], message: str, status: int) -> web.Response:
    """An error as the format's providers answer it."""
    body = error_body(dialect, message, status)
    if "type" not in body:
        body["error"] |= {"param": None, "code": None}  # as OpenAI's
    return web.json_response(body, status=status)
