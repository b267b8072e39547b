"""What a call's verify commands are worth: the number that one wrote, else the share of those that passed.

Invariant: the reward file stands in a directory that was made after the agent's processes had ended, and is bounded.
The documented place, `/home/user/logs/verifier`, is a link to it, made at the same time: where that cannot be done, by
the agent's doing, nothing counts, because commands that write a reward as a rule always exit 0.
"""

import math

import verifiers.v1 as vf
from agent_sandbox.programs import program_argv
from agent_sandbox.toolbox.checked_run import run_for
from agent_sandbox.toolbox.scoring_home import VERIFIER_DIRECTORY, ScoringHome
from opencode_rubrics import AnyTrace, CommandResult, VerifyCommandsRubric
from opencode_rubrics.reward_file import read_reward_file
from opencode_rubrics.verify_commands import VerifyPlan, explained

_HOME = "/home/user"
_SECONDS = 60.0


class RunRolloutRubric(VerifyCommandsRubric):
    """Scores a `run_rollout`; without verify commands there is no reward."""

    async def score(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None) -> None:
        """Run the verify commands, if there are any; raises as `Rubric.score`."""
        if getattr(task, "verify", None):
            await super().score(task, trace, runtime)

    def directory(self, trace: AnyTrace) -> str:
        """The home of setup and verify commands, above the agent's work directory."""
        return _HOME

    async def run(
        self, plan: VerifyPlan, trace: AnyTrace, runtime: vf.Runtime, home: ScoringHome, workdir: str
    ) -> list[CommandResult]:
        """Results of all commands, with the reward file's documented place made first."""
        if not home.problem:
            argv = [
                home.shell,
                *program_argv("reward_place.sh", _HOME, VERIFIER_DIRECTORY, owner="opencode_openenv")[1:],
            ]
            made = await run_for(runtime, argv, _SECONDS, "the reward file's place cannot be made")
            if made.exit_code != 0:
                home.problem = f"{_HOME}/logs/verifier cannot be made: {made.stderr.strip()[-300:]}"
        return await super().run(plan, trace, runtime, home, workdir)

    async def reward(
        self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime, home: ScoringHome, results: list[CommandResult]
    ) -> float:
        """The reward file's number if there is one, else the share of commands that passed."""
        if home.problem:
            return explained(trace, home.problem)
        if not home.reward_file:
            return sum(result.ok for result in results) / len(results)
        bounds: tuple[float, float] | None = getattr(task, "reward_bounds", None)
        written = await read_reward_file(runtime, *(bounds or (-math.inf, math.inf)))
        return explained(trace, written.problem) if written.problem else written.reward
