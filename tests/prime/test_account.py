"""Whose sandboxes they are: those of the key and team of the environment, else of `prime login`."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rollout_sandbox.errors import SandboxAccessError, SandboxGatewayError
from rollout_sandbox.prime import provision_prime
from rollout_sandbox.prime.command_line import main
from verifiers.v1.runtimes import PrimeConfig

from tests.prime.conftest import provision
from tests.support.prime_api import Fault, PrimeApi

Login = Callable[..., None]


@pytest.fixture
def login(api: PrimeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    """Logs in as `prime login` does: with a file in the home directory, and nothing in the environment."""

    def written(**settings: str) -> None:
        for name in ("PRIME_API_KEY", "PRIME_API_BASE_URL", "PRIME_TEAM_ID"):
            monkeypatch.delenv(name, raising=False)
        (tmp_path / ".prime").mkdir()
        given = {"api_key": api.key, "base_url": api.url, **settings}
        (tmp_path / ".prime" / "config.json").write_text(json.dumps(given))

    return written


async def listed(capsys: pytest.CaptureFixture[str]) -> int:
    """How many sandboxes `opencode-sandboxes list` shows."""
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["list", "--label", "mine", "--json"]) == 0
    return len(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("variable", ["none", "team", "empty"])
async def test_the_account_of_a_login_is_used_and_its_team_unless_the_environment_names_another(
    api: PrimeApi, login: Login, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str
) -> None:
    login(team_id="team-of-others" if variable == "team" else api.team)
    if variable != "none":
        monkeypatch.setenv("PRIME_TEAM_ID", api.team if variable == "team" else "")
    async with provision_prime(PrimeConfig(labels=["mine"]), 60) as box:
        assert (await box.run(["true"], {})).exit_code == 0
        assert api.sandboxes[0].request.get("team_id") == (None if variable == "empty" else api.team)
        assert await listed(capsys) == 1
        monkeypatch.setenv("PRIME_TEAM_ID", api.team if variable == "empty" else "")
        assert await listed(capsys) == 0, "they are another team's"


async def test_what_a_lost_creation_made_for_a_team_is_found_and_deleted(api: PrimeApi, login: Login) -> None:
    login(team_id=api.team)
    api.add(Fault("create", lost=True, times=3))
    with pytest.raises(SandboxGatewayError):
        await provision()
    assert (len(api.sandboxes), api.living) == (1, [])


@pytest.mark.parametrize("wrong", [{"api_key": "expired"}, {"team_id": "team-of-others"}], ids=["key", "team"])
async def test_a_login_that_is_refused_says_what_to_change(api: PrimeApi, login: Login, wrong: dict[str, str]) -> None:
    login(**wrong)
    with pytest.raises(SandboxAccessError, match="run `prime login`, and PRIME_TEAM_ID for a team's"):
        await provision()
    assert (api.requests["create"], api.sandboxes) == (1, [])


async def test_without_any_account_it_is_said_what_to_do(
    api: PrimeApi, login: Login, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    login()
    (tmp_path / ".prime" / "config.json").unlink()
    with pytest.raises(SystemExit, match="prime login"):
        await provision()
    assert await asyncio.to_thread(main, ["list"]) == 1
    assert "No API key configured" in capsys.readouterr().err
