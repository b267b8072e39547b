"""What agent code and the files that it left find out about the commands that check them, and do to them: nothing."""

import pytest
import rollout_sandbox.toolbox.scoring_home
import verifiers.v1 as vf
from rollout_sandbox.errors import ScoringTimeout
from rollout_sandbox.toolbox.scoring import Scoring, attach
from rollout_sandbox.toolbox.scoring_home import scoring_home

from tests.rubrics.test_verify_cheats import do, score, shown, solve


@pytest.fixture
def box(shared_root_box: vf.Runtime) -> vf.Runtime:
    return shared_root_box


READS = 'import sys; sys.exit("4242" not in open("/app/{}").read())'
LINKS = {
    "command line": ("ln -s /proc/self/cmdline {}", "grep -q 4242 {}"),
    "command line of a program": ("ln -s /proc/self/cmdline {}", f"python3 -I -c '{READS}'"),
    "environment": ("ln -s /proc/self/environ {}", "grep -q 4242 <{}"),
    "standard input": ("ln -s /proc/self/fd/0 {}", "echo 42 | cmp - {}"),
    "standard input by its device": ("ln -s /dev/stdin {}", "echo 42 | cmp - {}"),
    "open file": ("ln -s /dev/fd/3 {}", 'echo 42 >"$TMPDIR/w"; exec 3<"$TMPDIR/w"; [ "$(cat {})" = 42 ]'),
    "directory": ("ln -s /proc/self {}", "grep -q 4242 {}/cmdline"),
    "directory of the check": ("ln -s /proc/self/cwd/want {}", 'cd "$TMPDIR"; echo 42 >want; cmp /app/{} want'),
    "process to come": ("ln -s /proc/99999/environ {}", "[ -L {} ]"),
    "folder that cannot be listed": ("mkdir d; ln -s /proc/self/cmdline d/{}; chmod 311 d", "grep -q 4242 d/{}"),
    "detour": ("mkdir /tmp/x; ln -s ../../proc/self /tmp/x/y; ln -s /tmp/x/y/cmdline {}", "grep -q 4242 {}"),
}


@pytest.mark.parametrize("lock", ["true", "chmod 311 /app"])
async def test_no_answer_is_a_link_to_its_own_check(box: vf.Runtime, lock: str) -> None:
    await do(box, "chmod -R u+rwX . && rm -rf ./* /tmp/x && ln -s /etc/hostname kept; ln -s kept 'kept too'")
    cheats = [(plant.format(f"answer{number}"), check.format(f"answer{number}"))
              for number, (plant, check) in enumerate(LINKS.values())]  # fmt: skip
    await do(box, "; ".join([*(plant for plant, _ in cheats), lock]))
    trace = await score(box, *(check for _, check in cheats), "[ -r kept ] && [ -r 'kept too' ]")
    assert [result["exit_code"] == 0 for result in trace.info["verify"]] == [*[False] * len(LINKS), True], shown(trace)


async def test_a_link_is_found_among_very_many(confined: vf.Runtime) -> None:
    await do(confined, 'python3 -c \'import os; [os.symlink("f", f"l{n}") for n in range(20_000)]\'; echo 1 >f')
    await do(confined, "ln -s /proc/self/cmdline /tmp/answer")
    trace = await score(confined, "grep -q 4242 /tmp/answer", "[ -e l19999 ]")
    assert [result["exit_code"] == 0 for result in trace.info["verify"]] == [False, True], shown(trace)


@pytest.mark.parametrize("agents", [True, False])
async def test_looking_at_what_is_left_in_the_agents_sandbox_is_its_time(confined: vf.Runtime, agents: bool) -> None:
    """Each link leads twice through the one before, so that following the last takes for ever."""
    await do(
        confined, 'mkdir l0; python3 -c \'import os; [os.symlink(f"l{n}/../l{n}", f"l{n+1}") for n in range(60)]\''
    )
    scoring = Scoring()
    attach(scoring, confined, agents=agents)
    with pytest.raises(ScoringTimeout) as raised:
        async with scoring.time(5.0), scoring_home(confined, "/app", exposed=False):
            pass
    assert raised.value.agents is agents


async def test_more_odd_links_than_can_be_looked_at_are_a_zero(
    confined: vf.Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_sandbox.toolbox.scoring_home, "_SECONDS", 0.5)
    await do(confined, "python3 -c 'import os; [os.symlink(chr(10), f\"l{n}\") for n in range(5_000)]'")
    await do(confined, "ln -s /proc/self/cmdline /tmp/answer")
    trace = await score(confined, "grep -q 4242 /tmp/answer; true")
    assert trace.reward == 0, shown(trace)
    assert "did not end within 0.5 s" in trace.info["verify_unready"]


async def test_no_output_of_a_check_goes_through_a_link_into_the_reward(box: vf.Runtime) -> None:
    await do(box, "chmod -R u+rwX . && ln -s /logs/verifier/reward.txt out")
    await solve(box, 'ln -s /logs/verifier/reward.txt "$AGENT_CODE_DIR/log"')
    check = 'echo 1 >out; run-agent-code -- sh solve.sh; echo 1 >"$AGENT_CODE_DIR/log"; cat /app/out'
    trace = await score(box, check, reward_file=True)
    assert trace.reward == 0, shown(trace)
    assert "no verify command wrote" in trace.info["reward_file"]


async def test_agent_code_answers_with_no_link_to_its_check(box: vf.Runtime) -> None:
    await solve(
        box,
        'cd "$AGENT_CODE_DIR"; ln -s /proc/self/cmdline a; ln -s /dev/stdin b; ln -s ../tmp/want c; mkdir d; '
        "ln -s ../a d; echo 1 >e; ln -s e f; ln -s /app/solve.sh g",
    )
    trace = await score(
        box,
        'echo 42 >"$TMPDIR/want"; run-agent-code -- sh solve.sh; cd "$AGENT_CODE_DIR"; grep -q 4242 a; [ $? = 2 ] && '
        '! cmp "$TMPDIR/want" b <"$TMPDIR/want" && ! cmp "$TMPDIR/want" c && ! grep -q 4242 d/a && '
        "cmp e f && cmp g /app/solve.sh",
    )
    assert trace.reward == 1, shown(trace)


SPOILT = ("rm in", "rm in; mkdir in", "mv ../2 ../e", "rm -rf ../3", 'chmod 000 "$AGENT_CODE_DIR"')


async def test_agent_code_cannot_make_the_next_run_an_error(box: vf.Runtime) -> None:
    await solve(box, f"case $1 in {' '.join(f'{number}) {spoil};;' for number, spoil in enumerate(SPOILT))} esac")
    checks = []
    for number in range(len(SPOILT)):
        place, again = f'"$AGENT_CODE_DIR/{number}"', f"run-agent-code --stdin in -- sh /app/solve.sh {number}"
        checks.append(f"mkdir {place} && cd {place} && touch in && echo ran; {again}; {again}; false")
    trace = await score(box, *checks)
    assert [(result["exit_code"], result["stdout"]) for result in trace.info["verify"]] == [(1, "ran\n")] * len(SPOILT)


async def test_programs_that_ask_the_system_for_their_home_find_no_settings_there(confined: vf.Runtime) -> None:
    await do(confined, "echo 42 >x; echo 'url = file:///app/x' >~/.curlrc; echo '.shell touch /app/ran' >~/.sqliterc")
    trace = await score(
        confined,
        "python3 -I -c 'import os, pwd, sys; sys.exit(os.path.exists(pwd.getpwuid(os.getuid()).pw_dir))'",
        '! command -v curl || [ -z "$(curl -s file:///nowhere)" ]',
        "! command -v sqlite3 || { sqlite3 :memory: 'select 1'; [ ! -e ran ]; }",
    )
    assert trace.reward == 1, shown(trace)
    assert (await do(confined, "getent passwd agent")).split(":")[5] == "/home/agent"
