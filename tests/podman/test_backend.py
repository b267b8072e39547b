"""What verifiers after 0.4.0 makes of `type custom` and the path of our backend."""

import pytest
from pydantic import TypeAdapter, ValidationError
from rollout_sandbox.compat import AFTER_0_4_0, backend_of
from rollout_sandbox.podman import PodmanConfig
from verifiers.v1.runtimes import RuntimeConfig, provision_runtime

pytestmark = [
    pytest.mark.podman,
    pytest.mark.skipif(not AFTER_0_4_0, reason="verifiers 0.4.0 makes runtimes of its own types only"),
]

NAMED = {"type": "custom", "import_path": "rollout_sandbox.PodmanBackend"}


def parsed(**fields: object) -> RuntimeConfig:
    found: RuntimeConfig = TypeAdapter(RuntimeConfig).validate_python({**NAMED, **fields})
    return found


async def test_verifiers_makes_the_runtime_from_its_path(podman_image: str) -> None:
    config = parsed(image=podman_image, run_options=["--hostname=named"])
    assert isinstance(config, PodmanConfig)
    async with provision_runtime(config, env={"OF_THE_TASK": "1"}) as box:
        result = await box.run(["sh", "-c", "cat /etc/hostname; echo; echo $OF_THE_TASK; pwd"], {})
        assert result.stdout == "named\n1\n/app\n"
        await box.write("/tmp/x", b"y")
        assert await box.read("/tmp/x", 1) == b"y"
        assert type(box.info).model_validate_json(box.info.model_dump_json()).id == box.info.id


async def test_no_network_is_enforced_through_verifiers_own_call(podman_image: str) -> None:
    async with provision_runtime(parsed(image=podman_image, allow=[])) as box:
        await backend_of(box).prepare_execution([])
        assert "eth0" not in (await box.run(["cat", "/proc/net/dev"], {})).stdout


def test_a_network_by_names_is_refused_when_the_configuration_is_built() -> None:
    with pytest.raises(ValidationError, match="cannot filter its network by name"):
        parsed(image="x", allow=["example.org"])
