"""A picture is not an observation: agents would read it as base64 text. It is refused where a world gives it."""

from collections.abc import Mapping
from typing import Any

import pytest
from mcp.types import AudioContent, ImageContent
from opencode_simulation import Step, World, tool
from opencode_simulation.alone import WorldAlone
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.errors import CallRefused, WorldError

PIXEL = "iVBORw0KGgo="


class Gallery(World):
    """Shows what its configuration names."""

    shown: Any = None

    def reset(self, seed: int | None, config: Mapping[str, Any]) -> Any:
        return self.shown if config.get("at_once") else "a gallery"

    @tool
    def look(self) -> Step:
        """Look."""
        return Step(self.shown)

    @tool
    def hang(self, what: Any) -> Step:
        """Hang something up."""
        return Step({"hung": what}, info={"seen": PICTURES[2]})


def showing(shown: Any) -> type[World]:
    """A gallery that shows it."""
    return type("Gallery", (Gallery,), {"shown": shown})


PICTURES = [
    ImageContent(type="image", data=PIXEL, mime_type="image/png"),
    AudioContent(type="audio", data=PIXEL, mime_type="audio/wav"),
    {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
    f"data:image/png;base64,{PIXEL}",
    ["a cat", {"seen": [ImageContent(type="image", data=PIXEL, mime_type="image/png")]}],
    {"type": "resource", "resource": {"uri": "gallery://cat", "blob": PIXEL, "mimeType": "image/png"}},
    {"mime_type": "audio/wav", "base64": PIXEL},
    {"type": "image", "bytes": PIXEL},
    {"type": "resource", "resource": {"uri": "gallery://cat", "blob": PIXEL}},
    f"data:image/png;charset=binary;base64,{PIXEL}",
    f"![a cat](data:image/png;base64,{PIXEL})",
    {"board": f"DATA:image/svg+xml;base64,{PIXEL}"},
]


@pytest.mark.parametrize("picture", PICTURES)
async def test_a_picture_is_refused_at_the_step(picture: Any) -> None:
    async with WorldAlone(showing(picture), EpisodeSpec()) as world:
        with pytest.raises(CallRefused, match="the simulation has failed"):
            await world.episode.call("look", {})
    assert "tool look: TypeError: the observation holds a picture or a sound" in str(world.ledger.summary.error)
    assert world.ledger.steps == []


async def test_a_picture_is_refused_at_the_reset() -> None:
    with pytest.raises(WorldError, match=r"reset\(\): TypeError: the observation holds a picture"):
        async with WorldAlone(showing(PICTURES[0]), EpisodeSpec(config={"at_once": True})):
            pass


@pytest.mark.parametrize(
    "words",
    [
        {"type": "image", "title": "a cat", "size": [640, 480]},
        {"type": "text", "data": "an image"},
        {"mimeType": "image/png", "source": "cat.png", "bytes": 640},
        {"mimeType": "text/plain", "data": "a cat"},
        "data:image/png is a media type",
        [{"image": "cat.png"}],
    ],
)
async def test_words_about_pictures_are_words(words: Any) -> None:
    async with WorldAlone(showing(words), EpisodeSpec()) as world:
        await world.episode.call("look", {})
    assert [entry.observation for entry in world.ledger.steps] == [words]


@pytest.mark.parametrize("picture", [picture for picture in PICTURES if isinstance(picture, dict | str)])
async def test_what_an_agent_gives_cannot_make_a_world_that_shows_it_fail(picture: Any) -> None:
    async with WorldAlone(Gallery, EpisodeSpec()) as world:
        with pytest.raises(CallRefused, match="the arguments hold a picture or a sound"):
            await world.episode.call("hang", {"what": {"this": picture}})
        await world.episode.call("hang", {"what": "a cat"})
    assert world.ledger.summary.error is None
    assert [entry.info for entry in world.ledger.steps] == [{"seen": PICTURES[2]}]
