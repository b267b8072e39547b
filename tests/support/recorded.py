"""Answers that real engines gave, and a server that gives them again, byte for byte and piece for piece."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from tests.support.served_app import served

_BYTES = ("utf-8", "surrogateescape")
"""A piece may end within a letter."""
PLACE = Path(__file__).parent / "recorded_engines"


@dataclass(frozen=True)
class Answer:
    """One answer of an engine."""

    status: int
    content_type: str
    pieces: Sequence[bytes]

    @property
    def text(self) -> str:
        return b"".join(self.pieces).decode()


def save(engine: str, scene: str, answers: Sequence[Answer]) -> None:
    """Write the answers of a scene, in the order in which they were given."""
    path = PLACE / f"{engine}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known[scene] = [[one.status, one.content_type, [piece.decode(*_BYTES) for piece in one.pieces]] for one in answers]
    PLACE.mkdir(exist_ok=True)
    path.write_text(json.dumps(known, indent=1) + "\n")


def engines() -> list[str]:
    """The engines of which there are answers."""
    return sorted(path.stem for path in PLACE.glob("*.json"))


def recorded(engine: str, scene: str) -> list[Answer]:
    """The answers of a scene."""
    known = json.loads((PLACE / f"{engine}.json").read_text())[scene]
    return [Answer(status, kind, [piece.encode(*_BYTES) for piece in pieces]) for status, kind, pieces in known]


@asynccontextmanager
async def playing(engine: str, scene: str) -> AsyncIterator[str]:
    """The base URL of a server that gives the answers of a scene, one for each model call, and then the last again."""
    answers, (models,) = recorded(engine, scene), recorded(engine, "models")
    given = iter(answers)

    async def answer(request: web.Request) -> web.StreamResponse:
        one = models if request.method == "GET" else next(given, answers[-1])
        response = web.StreamResponse(status=one.status, headers={"Content-Type": one.content_type})
        await response.prepare(request)
        for piece in one.pieces:
            await response.write(piece)
        await response.write_eof()
        return response

    app = web.Application(client_max_size=1 << 28)
    app.router.add_route("*", "/{path:.*}", answer)
    async with served(app) as url:
        yield f"{url}/v1"
