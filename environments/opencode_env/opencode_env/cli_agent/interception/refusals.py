"""Answers to requests that verifiers' server does not get to see."""

from typing import Any

from aiohttp import web
from rollout_sandbox.compat import error_body
from verifiers.v1.dialects import Dialect


class RequestRefused(ValueError):
    """A request that a provider would not take either; it was never a model call. The message is for the caller."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Answered(Exception):
    """A step has answered a call, which goes no further."""

    def __init__(self, response: web.Response) -> None:
        super().__init__()
        self.response = response


def error_answer(dialect: Dialect[Any], message: str, status: int) -> web.Response:
    """An error as the format's providers answer it."""
    body = error_body(dialect, message, status)
    if "type" not in body:
        body["error"] |= {"param": None, "code": None}  # as OpenAI's
    return web.json_response(body, status=status)
