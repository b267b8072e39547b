"""One world and an agent that asks it for what it should not be asked."""

import asyncio
import math
import time
from collections.abc import Mapping
from typing import Any

import pytest
from opencode_simulation import Step, World, tool
from opencode_simulation import episode as episode_module
from opencode_simulation.alone import WorldAlone
from opencode_simulation.episode import MOST_WAITING, EpisodeSpec
from opencode_simulation.errors import CallRefused

from tests.support.waiting import PATIENCE_SECONDS, until


class Echo(World):
    """Shows and keeps what it is given."""

    def reset(self, seed: int | None, config: Mapping[str, Any]) -> str:
        self.said = 0
        return "ready"

    @tool
    def say(self, words: list[Any]) -> Step:
        """Say something."""
        self.said += 1
        words.append("and more")
        return Step({"said": words}, 1.0)

    @tool
    def hang(self) -> Step:
        """Do not answer."""
        time.sleep(3)
        return Step("")

    @tool
    def pay(self, amount: float) -> Step:
        """Give a reward."""
        return Step("", amount)

    @tool
    async def fetch(this, self: str, method: str) -> Step:
        """Have parameters of any name."""
        return Step(f"{method} {self}")

    def of(self, method: str, name: str) -> str:
        """A resource with such parameters."""
        return f"{method} {name}"

    def total(self) -> int:
        """How much was said."""
        return self.said


@pytest.mark.parametrize("word", [math.nan, math.inf, "\ud800", {"deep": [-math.inf]}, 2**63, [-(10**5000)]])
async def test_arguments_that_are_not_json_are_refused_before_a_world_can_fail_at_them(word: Any) -> None:
    async with WorldAlone(Echo, EpisodeSpec()) as world:
        with pytest.raises(CallRefused, match="the arguments are not JSON"):
            await world.episode.call("say", {"words": [word]})
        assert await world.episode.call("say", {"words": ["so"]}) == '{"said": ["so", "and more"]}'
    assert world.ledger.summary.error is None
    assert (world.ledger.summary.steps, world.episode.refused) == (1, 1)


async def test_a_return_that_is_no_number_any_more_is_the_worlds_failure() -> None:
    async with WorldAlone(Echo, EpisodeSpec()) as world:
        assert await world.episode.call("pay", {"amount": 1e308}) == ""
        with pytest.raises(CallRefused, match="the simulation has failed"):
            await world.episode.call("pay", {"amount": 1e308})
    assert "the return is no longer finite" in str(world.ledger.summary.error)
    assert world.ledger.summary.total_reward == 1e308


async def test_the_ledger_has_the_arguments_as_they_were_given() -> None:
    async with WorldAlone(Echo, EpisodeSpec()) as world:
        await world.episode.call("say", {"words": ["so"]})
    assert world.ledger.steps[0].arguments == {"words": ["so"]}


async def test_an_agent_that_talks_without_end_fills_its_ledger_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_module, "LEDGER_BYTES", 20_000)
    async with WorldAlone(Echo, EpisodeSpec()) as world:
        for _ in range(100):
            try:
                shown = await world.episode.call("say", {"words": ["x" * 100]})
            except CallRefused:
                break
        assert shown == "the episode is over: its ledger is full"
    kept = world.ledger
    assert 1 < len(kept.steps) < 10
    assert kept.summary.total_reward == len(kept.steps)
    assert kept.steps[-1].info == {"truncated_by": "ledger_bytes"}
    assert (kept.summary.truncated, kept.summary.error) == (True, None)
    assert len(kept.model_dump_json()) < 20_000


async def test_a_step_that_the_ledger_cannot_take_in_is_not_shown_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_module, "LEDGER_BYTES", 20_000)
    async with WorldAlone(Echo, EpisodeSpec()) as world:
        assert "full" in await world.episode.call("say", {"words": ["x" * 20_000]})
    assert [(entry.truncated, entry.reward) for entry in world.ledger.steps] == [(True, 1.0)]


async def test_clients_that_number_their_calls_alike_do_not_answer_for_each_other() -> None:
    async with WorldAlone(Echo, EpisodeSpec()) as world:
        for client in ("agent", "program", "agent"):
            await world.episode.call("say", {"words": []}, (client, "1 say"))
        assert len(world.ledger.steps) == 2
        world.episode.forget_calls("program")
        for client in ("agent", "program"):
            await world.episode.call("say", {"words": []}, (client, "1 say"))
    assert len(world.ledger.steps) == 3


async def test_nothing_is_read_from_a_world_that_hangs() -> None:
    async with WorldAlone(Echo, EpisodeSpec(step_timeout=0.1)) as world:
        with pytest.raises(CallRefused, match="the simulation has failed"):
            await world.episode.call("hang", {})
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(CallRefused, match="the simulation has failed"):
                await world.episode.read(world.episode.world.total)  # type: ignore[attr-defined]
    assert "did not return within 0.1 s" in str(world.ledger.summary.error)


async def test_calls_whose_senders_have_gone_do_not_pile_up() -> None:
    async with WorldAlone(Echo, EpisodeSpec()) as world:
        await world.episode._lock.acquire()
        calls = [asyncio.create_task(world.episode.call("say", {"words": [n]})) for n in range(MOST_WAITING)]
        await until(lambda: len(world.episode._waiting) == MOST_WAITING)
        for call in calls[1:]:
            call.cancel()
        with pytest.raises(CallRefused, match="64 calls are waiting already"):
            await world.episode.call("say", {"words": []})
        world.episode._lock.release()
        assert "0" in await calls[0]
        await until(lambda: not world.episode._waiting)
        await world.episode.call("say", {"words": ["after"]})
    assert len(world.ledger.steps) == MOST_WAITING + 1


async def test_parameters_may_have_any_name() -> None:
    async with WorldAlone(Echo, EpisodeSpec()) as world:
        assert await world.episode.call("fetch", {"self": "it", "method": "GET"}) == "GET it"
        echo = world.episode.world
        assert isinstance(echo, Echo)
        assert await world.episode.read(echo.of, method="GET", name="it") == "GET it"
