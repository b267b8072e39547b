"""What verifiers after 0.4.0 makes of `type custom` and the path of the confined sandbox."""

import pytest
from pydantic import TypeAdapter, ValidationError
from rollout_sandbox.compat import AFTER_0_4_0
from verifiers.v1.runtimes import RuntimeConfig, provision_runtime

pytestmark = pytest.mark.skipif(not AFTER_0_4_0, reason="verifiers 0.4.0 makes runtimes of its own types only")


def parsed(**fields: object) -> RuntimeConfig:
    named = {"type": "custom", "import_path": "rollout_sandbox.ConfinedBackend"}
    found: RuntimeConfig = TypeAdapter(RuntimeConfig).validate_python({**named, **fields})
    return found


@pytest.mark.usefixtures("sandboxes")
async def test_verifiers_makes_the_sandbox_from_its_path() -> None:
    config = parsed(workdir="/work", max_processes=64)
    async with provision_runtime(config, env={"OF_THE_TASK": "1"}) as box:
        assert (await box.run(["sh", "-c", "id -u; echo $OF_THE_TASK; pwd"], {})).stdout == "1000\n1\n/work\n"
        await box.write("/tmp/x", b"y")
        assert await box.read("/tmp/x", 1) == b"y"
        assert type(box.info).model_validate_json(box.info.model_dump_json()).id == box.info.id


@pytest.mark.parametrize("fields", [{"confine": False}, {"allow": ["example.org"]}, {"workdir": "made"}])
def test_what_it_cannot_be_is_refused_when_the_configuration_is_built(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        parsed(**fields)
