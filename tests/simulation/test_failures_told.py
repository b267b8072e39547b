"""A world's failure is told with the frames of its author's code, wherever it fails and whoever plays it."""

import io
import json
import sys
from pathlib import Path

import pytest
from mcp.client.client import Client
from opencode_simulation.__main__ import main
from opencode_simulation.alone import WorldAlone
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.errors import CallRefused, WorldError, failure_text

from tests.simulation import failing_worlds
from tests.support.forked import Forked
from tests.support.programs import own_variables
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
WORLD = "tests.simulation.failing_worlds"


def has_frames(told: str, *methods: str) -> bool:
    """Whether a text names the file, these methods and the line of where they failed, and nothing of ours."""
    return (
        "failing_worlds.py" in told
        and all(f"in {method}\n" in told for method in methods)
        and 'raise RuntimeError(f"the shelf is gone: {how}") from error' in told
        and "LookupError: no such shelf, and then:" in told
        and not any(name in told for name in ("episode.py", "eval_protocol.py"))
    )


async def failure(world: str, tool: str | None, **config: str) -> str:
    """How a world of these fails when it is played to its end."""
    async with WorldAlone(getattr(failing_worlds, world), EpisodeSpec(config=dict(config))) as alone:
        if tool is not None:
            with pytest.raises(CallRefused, match="the simulation has failed"):
                await alone.episode.call(tool, {})
        await alone.episode.finish()
    return str(alone.ledger.summary.error)


@pytest.mark.parametrize(
    ("world", "tool", "config", "methods"),
    [
        ("Failing", "act", {"at": "act"}, ("act", "fail", "of_the_world")),
        ("Failing", "act_slowly", {"at": "act_slowly"}, ("act_slowly", "of_the_world")),
        ("Failing", None, {"at": "finish"}, ("finish", "of_the_world")),
        ("Hooked", "act", {}, ("step_environment", "of_the_world")),
    ],
)
async def test_a_failure_in_play_keeps_its_frames(
    world: str, tool: str | None, config: dict[str, str], methods: tuple[str, ...]
) -> None:
    told = await failure(world, tool, **config)
    assert has_frames(told, *methods), told
    assert f"world {world}: " in told.splitlines()[0]
    assert "RuntimeError: the shelf is gone" in told.splitlines()[0]


@pytest.mark.parametrize(
    ("world", "at", "method"),
    [("Failing", "reset", "reset"), ("Failing", "close", "close"), ("Unmade", "", "__init__")],
)
async def test_a_failure_around_the_play_keeps_its_frames(world: str, at: str, method: str) -> None:
    with pytest.raises(WorldError) as failed:
        await failure(world, None, at=at)
    assert has_frames(str(failed.value), method, "of_the_world"), str(failed.value)


async def test_a_failed_resource_keeps_its_frames() -> None:
    async with WorldAlone(failing_worlds.Failing, EpisodeSpec()) as alone:
        with pytest.raises(CallRefused):
            await alone.episode.read(alone.episode.world.shelf)  # type: ignore[attr-defined]
    assert has_frames(str(alone.ledger.summary.error), "shelf"), alone.ledger.summary.error


@pytest.mark.parametrize(("how", "words"), [("silent", "Mute: (its text cannot be had)"), ("exits", "SystemExit: 3")])
async def test_what_cannot_be_printed_or_would_end_the_process_is_a_failure_like_others(how: str, words: str) -> None:
    async with WorldAlone(failing_worlds.Failing, EpisodeSpec()) as alone:
        with pytest.raises(CallRefused, match="the simulation has failed"):
            await alone.episode.call("act", {"how": how})
    told = str(alone.ledger.summary.error)
    assert words in told
    assert "in of_the_world\n" in told


def test_of_a_deep_and_long_failure_the_nearest_frames_are_told() -> None:
    def deeper(levels: int) -> None:
        if not levels:
            raise KeyError("\udcff" * 10_000)
        deeper(levels - 1)

    with pytest.raises(KeyError) as failed:
        deeper(300)
    told = failure_text(failed.value)
    assert len(told) < 8000
    assert len(told.encode()) < 8000
    assert told.endswith('raise KeyError("\\udcff" * 10_000)')


def test_who_plays_a_world_that_fails_sees_where_and_the_command_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in ("act", "reset", "finish", "close"):
        monkeypatch.setattr("sys.stdin", io.StringIO("act\nquit\n"))
        with pytest.raises(SystemExit) as ended:
            main(["play", f"{WORLD}:Failing", "--config", json.dumps({"at": at})])
        # What a program says as it ends with a text, with code 1.
        assert isinstance(ended.value.code, str), at
        assert has_frames(ended.value.code, at, "of_the_world"), ended.value.code
        assert "RuntimeError" not in capsys.readouterr().out


@pytest.mark.usefixtures("programs")
async def test_who_serves_a_world_that_fails_sees_where_at_once_and_the_command_fails(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "opencode_simulation", "serve", f"{WORLD}:Failing", "--config", '{"at": "act"}']
    output, error = tmp_path / "output", tmp_path / "error"
    with output.open("wb") as out, error.open("wb") as err:
        server = Forked(argv, ROOT, own_variables(), err, out)
    try:
        await until(lambda: output.read_text().endswith("\n"))
        async with Client(output.read_text().split()[-1]) as client:
            assert (await client.call_tool("act", {})).is_error
        await until(lambda: "raise RuntimeError" in error.read_text())  # before it is told to end
    finally:
        server.terminate()
        assert await server.ended() == 1
    assert has_frames(error.read_text(), "act", "of_the_world"), error.read_text()
    assert error.read_text().count("RuntimeError: ") == 1
