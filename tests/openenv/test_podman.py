"""A call on a server whose rollouts run in containers."""

import pytest
from opencode_openenv.rollout_engine import RolloutEngine
from opencode_openenv.settings import ServerConfig

from tests.openenv.playing import play
from tests.openenv.test_rollouts import PLANTS, REWARD

pytestmark = [pytest.mark.podman, pytest.mark.opencode, pytest.mark.slow]


async def test_a_rollout_in_a_container_of_the_callers_image(
    podman_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_OPENENV_TOKEN", "a-long-token")
    config = ServerConfig.model_validate({"runtime": {"type": "podman", "image": "no-such-image"}})
    async with RolloutEngine(config.environment()).open() as engine:
        result = await play(
            engine,
            f"cp ../given made; {PLANTS['a link above it']}",
            template=podman_image,
            setup=["echo seven > given; pwd; env"],
            verify=["grep seven workdir/made", f"test ! -e {REWARD}", f"echo 0.75 > {REWARD}"],
        )
        assert (result.reward, result.error, result.reward_note) == (0.75, None, "")
        assert result.setup_results[0].stdout.startswith("/home/user\n")
        assert "a-long-token" not in result.setup_results[0].stdout
        assert result.files["/home/user/workdir/made"] == "seven\n"
        missing = await play(engine, template="no-such-image-either", verify=["true"])
        assert missing.reward is None
        assert str(missing.error).startswith("SandboxError: ")
