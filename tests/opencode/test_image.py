"""The image that `make image` builds: the harness installs nothing in it, and the math rubric sends nothing."""

import hashlib
import logging
import sys
from pathlib import Path

import pytest
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.agents.opencode.builds import DEFAULT_VERSION, CachedBuild
from opencode_env.agents.opencode.install import InstallRecord, install
from opencode_rubrics import RemoteHybridMathConfig, RemoteHybridMathRubric

from tests.rubrics.math_places import Place, image_with_agent_user
from tests.rubrics.math_support import score
from tests.support.places import podman_box
from tests.support.programs import finished, own_variables

pytestmark = [pytest.mark.podman, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def made_image(podman_image: str) -> str:
    """`make image` on the base of the tests; its name changes with the Dockerfile."""
    base = image_with_agent_user(podman_image)
    digest = hashlib.sha256((ROOT / "Dockerfile").read_bytes() + base.encode()).hexdigest()[:12]
    tag = f"localhost/opencode-env-made:{digest}"
    argv = [sys.executable, str(ROOT / "scripts" / "make_image.py"), "--base", base, "--tag", tag, "--engine", "podman"]
    built = finished(argv, ROOT, own_variables(BUILDAH_ISOLATION="chroot"))
    assert built.returncode == 0, built.stderr
    assert f"--env.agent.runtime.image {tag} --env.agent.harness.install image" in built.stdout
    return tag


async def test_the_harness_sees_what_the_image_holds_and_installs_nothing(made_image: str, build: CachedBuild) -> None:
    async with podman_box(made_image) as box:
        for strategy in ("image", "auto"):
            record = InstallRecord()
            config = OpenCodeHarnessConfig(id="opencode-env", install=strategy)
            assert await install(config, box, trust_image=False, record=record) == f"/opencode/{build.directory.name}"
            assert (record.way, record.bytes, set(record.seconds)) == ("present", 0, {"check"})
        version = await box.run([f"/opencode/{build.directory.name}/opencode", "--version"], {})
        assert version.stdout.strip() == DEFAULT_VERSION


async def test_the_math_rubric_uses_the_scorer_of_the_image_unless_somebody_changed_it(
    made_image: str, caplog: pytest.LogCaptureFixture
) -> None:
    rubric = RemoteHybridMathRubric(RemoteHybridMathConfig(max_workers=1))
    try:
        async with podman_box(made_image) as box:
            place = Place("agent-user", box, box.with_user("agent", "/home/agent"), rubric)
            with caplog.at_level(logging.WARNING):
                for sent in (False, True):
                    await place.do("mkdir -p /app && echo 42 >/app/answer.txt")
                    assert (await score(rubric, box, "42", agent_user="agent")).reward == 1.0
                    kept = await box.run(["sh", "-c", "ls -d /var/lib/opencode-scorer-*"], {})
                    assert (kept.exit_code == 0) == sent
                    await box.run(["sh", "-c", "for zip in /opt/opencode-scorer/*.zip; do echo more >>$zip; done"], {})
            assert caplog.text == ""
    finally:
        await rubric.teardown()
