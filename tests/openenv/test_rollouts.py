"""What a call means: setup, agent, verify, reward, files and limits, in the confined local sandbox."""

import os
from typing import Any

import pytest
from opencode_env.scripted_model import RecordedRequest
from opencode_openenv.rollout_engine import RolloutEngine

from tests.openenv.playing import play

pytestmark = pytest.mark.usefixtures("light_opencode")

REWARD = "/home/user/logs/verifier/reward.txt"


async def test_a_failed_setup_skips_agent_and_verify_and_gives_no_reward(engine: RolloutEngine) -> None:
    seen: list[RecordedRequest] = []
    setup = ["true", "echo why >&2; exit 3", "touch /home/user/never"]
    result = await play(engine, seen=seen, setup=setup, verify=["true"])
    assert (result.reward, result.verify_results, seen) == (None, [], [])
    assert result.error == "setup command failed (exit 3): echo why >&2; exit 3: why"
    assert [command.exit_code for command in result.setup_results] == [0, 3]
    assert result.stop_condition == "error"


async def test_the_directories_mean_what_they_did(engine: RolloutEngine) -> None:
    result = await play(
        engine,
        "pwd > where.txt",
        setup=["pwd; echo ~; ls -d /home/user/workdir"],
        verify=["pwd", "grep -x /home/user/workdir workdir/where.txt"],
    )
    assert result.setup_results[0].stdout == "/home/user\n/home/user\n/home/user/workdir\n"
    assert result.verify_results[0].stdout == "/home/user\n"
    assert result.reward == 1.0


async def test_without_verify_commands_there_is_no_reward(engine: RolloutEngine) -> None:
    result = await play(engine, "true")
    assert (result.reward, result.error, result.stop_condition) == (None, None, "agent_completed")


async def test_a_reward_that_a_verify_command_wrote_goes_before_the_share(engine: RolloutEngine) -> None:
    result = await play(engine, "true", verify=[f"echo 0.25 > {REWARD}", "true"])
    assert (result.reward, result.reward_note) == (0.25, "")
    for odd in ("nan", "inf", "yes"):
        result = await play(engine, "true", verify=[f"echo {odd} > {REWARD}"])
        assert (result.reward, bool(result.reward_note)) == (0.0, True)


async def test_a_reward_beyond_the_bounds_counts_where_the_caller_named_none(engine: RolloutEngine) -> None:
    """Clients of OpenEnv's own server know of no bounds: they would see a 0 without a reason."""
    for written in (7.0, -2.5):
        old = await play(engine, "true", verify=[f"echo {written} > {REWARD}"])
        assert (old.reward, old.reward_note, old.error) == (written, "", None)
    given: list[tuple[dict[str, Any], str]] = [({"reward_max": 1.0}, "[0, 1]"), ({"reward_min": -1.0}, "[-1, 1]")]
    for bounds, told in given:
        beyond = await play(engine, "true", verify=[f"echo 7 > {REWARD}"], **bounds)
        assert beyond.reward == 0.0
        assert f"not in {told}" in beyond.reward_note
    allowed = await play(engine, "true", verify=[f"echo 7 > {REWARD}"], reward_max=10.0)
    assert allowed.reward == 7.0


PLANTS = {
    "a file": "mkdir -p ../logs/verifier && echo 1 > ../logs/verifier/reward.txt",
    "a file at the real place": "mkdir -p /logs/verifier && echo 1 > /logs/verifier/reward.txt",
    "a link to a directory": "mkdir -p kept ../logs && echo 1 > kept/reward.txt && ln -s $PWD/kept ../logs/verifier",
    "a link above it": "mkdir -p kept/verifier && echo 1 > kept/verifier/reward.txt && ln -s $PWD/kept ../logs",
    "a directory without rights": "mkdir -p ../logs/verifier/a && echo 1 > ../logs/verifier/reward.txt "
    "&& chmod 0 ../logs/verifier/a ../logs/verifier ../logs",
    "a file in the way": "echo 1 > ../logs",
    "a writer that stays": f"setsid sh -c 'while :; do echo 1 > {REWARD}; done' >/dev/null 2>&1 &",
}


@pytest.mark.parametrize("plant", PLANTS)
async def test_a_planted_reward_counts_for_nothing(engine: RolloutEngine, plant: str) -> None:
    result = await play(engine, PLANTS[plant], verify=[f"test ! -e {REWARD}", f"echo 0.5 > {REWARD}"])
    # It is gone before the first verify command, and keeps none from writing the real one.
    assert [command.exit_code for command in result.verify_results] == [0, 0]
    assert (result.reward, result.reward_note) == (0.5, "")


async def test_a_planted_reward_is_not_read_where_no_command_writes_one(engine: RolloutEngine) -> None:
    result = await play(engine, PLANTS["a file at the real place"], verify=["false"])
    assert result.reward == 0.0


async def test_agent_code_kept_apart_cannot_write_the_reward(engine: RolloutEngine) -> None:
    cheat = f"echo 1 > {REWARD}; echo 1 > /logs/verifier/reward.txt; ls /logs; exit 0"
    result = await play(engine, f"echo {cheat!r} > cheat.sh", verify=["run-agent-code sh workdir/cheat.sh", "false"])
    assert result.reward == 0.5


async def test_files_are_the_texts_of_the_work_directory_and_no_links(engine: RolloutEngine) -> None:
    made = [
        "mkdir -p a/b; echo one > one.txt; echo two > a/two.txt; echo deep > a/b/deep.txt",
        "ln -s /etc/passwd passwd; ln -s ../given a/given; mkfifo pipe; printf 'a\\0b' > binary",
        "head -c 70000 /dev/zero | tr '\\0' x > large; printf 'é%.0s' $(seq 20000) > long",
        "touch \"$(printf 'odd\\nname')\"",
    ]
    result = await play(engine, *made, setup=["echo secret > given"])
    root = "/home/user/workdir"
    assert len(result.files.pop(f"{root}/long")) == 8000
    assert result.files == {f"{root}/one.txt": "one\n", f"{root}/a/two.txt": "two\n", f"{root}/odd\nname": ""}
    assert result.files_extra == [f"{root}/binary"]
    many = await play(engine, "for i in $(seq 200); do echo $i > f$i; done; ln -s / /tmp/x")
    assert len(many.files) == 32


async def test_a_work_directory_that_became_a_link_shows_no_files(engine: RolloutEngine) -> None:
    result = await play(engine, "cd /; rm -rf /home/user/workdir && ln -s /etc /home/user/workdir", verify=["true"])
    assert (result.files, result.reward) == ({}, 1.0)


async def test_the_callers_key_enters_no_sandbox_and_no_result(engine: RolloutEngine) -> None:
    key = "sk-a-callers-very-own-key"
    seen: list[RecordedRequest] = []
    look = "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; grep -rs sk-a-call /tmp /home /app"
    result = await play(engine, look, seen=seen, api_key=key, setup=["env"], verify=["env"])
    assert {recorded.headers["authorization"] for recorded in seen} == {f"Bearer {key}"}
    assert "sk-a-callers-very" not in result.model_dump_json()
    assert key not in os.environ.values()
    told = [str(message) for recorded in seen for message in recorded.body["messages"]]
    assert not any("sk-a-callers-very" in text for text in told)


async def test_what_is_asked_of_the_endpoint_are_the_arguments(engine: RolloutEngine) -> None:
    seen: list[RecordedRequest] = []
    await play(engine, seen=seen, max_tokens_cap=77, top_logprobs=3, disable_thinking=True)
    (body,) = [recorded.body for recorded in seen]
    assert (body["max_tokens"], body["logprobs"], body["top_logprobs"]) == (77, True, 3)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    seen.clear()
    result = await play(engine, seen=seen, max_tokens_cap=0, mode="black_box")
    (body,) = [recorded.body for recorded in seen]
    assert "logprobs" not in body
    assert body["max_tokens"] > 4096
    assert (result.proxy_turns, result.mode) == ([], "black_box")
    assert "black_box" in result.training_trace_reason
