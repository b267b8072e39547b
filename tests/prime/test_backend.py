"""What verifiers after 0.4.0 makes of `type custom` and the path of our backend for Prime."""

import pytest
from pydantic import TypeAdapter
from rollout_sandbox.compat import AFTER_0_4_0
from verifiers.v1.runtimes import RuntimeConfig, provision_runtime

from tests.support.prime_api import PrimeApi

pytestmark = pytest.mark.skipif(not AFTER_0_4_0, reason="verifiers 0.4.0 makes runtimes of its own types only")


async def test_verifiers_makes_an_owned_sandbox_from_its_path(api: PrimeApi) -> None:
    named = {"type": "custom", "import_path": "rollout_sandbox.OwnedPrimeBackend", "labels": ["mine"]}
    config: RuntimeConfig = TypeAdapter(RuntimeConfig).validate_python({**named, "lifetime_minutes": 7})
    async with provision_runtime(config, env={"OF_THE_TASK": "1"}) as box:
        assert (await box.run(["sh", "-c", "echo $OF_THE_TASK"], {})).stdout == "1\n"
        (sandbox,) = api.living
        assert "mine" in sandbox.request["labels"]
        assert sandbox.request["timeout_minutes"] == 7
    assert api.living == []
