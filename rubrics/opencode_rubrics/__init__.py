"""Rubrics that score inside a sandbox."""

from rollout_sandbox.errors import SandboxFileError, ScoringError
from rollout_sandbox.toolbox.bounded_file import FileState
from rollout_sandbox.toolbox.checked_run import require_alive, run_checked
from rollout_sandbox.toolbox.command import CommandResult, run_command
from rollout_sandbox.toolbox.files import read_file, upload_bundle, upload_content, upload_file
from rollout_sandbox.toolbox.workdir import in_workdir, work_directory, workdir_of

from opencode_rubrics.answer import AnswerConfig, AnswerRubric, answer_text
from opencode_rubrics.code_problem import CodeTest, CodeTests
from opencode_rubrics.code_tests import CodeTestsConfig, CodeTestsRubric
from opencode_rubrics.environment_return import EnvironmentReturnConfig, EnvironmentReturnRubric
from opencode_rubrics.errors import CleanupError, JudgeError
from opencode_rubrics.hybrid_math import HybridMathConfig, HybridMathRubric
from opencode_rubrics.judge import JudgeRubric, JudgeRubricConfig
from opencode_rubrics.registry import AnyRubricConfig, RubricGroup, RubricGroupConfig, live_rubric, rubrics_in_use
from opencode_rubrics.remote_hybrid_math import RemoteHybridMathConfig, RemoteHybridMathRubric
from opencode_rubrics.rubric import AnyTrace, Rubric, RubricConfig, RubricTask, cleanup, run_cleanup
from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.swe_tests import SweTestsConfig, SweTestsRubric
from opencode_rubrics.task_tests import TaskTestsConfig, TaskTestsRubric
from opencode_rubrics.verify_commands import VerifyCommandsConfig, VerifyCommandsRubric

__all__ = [
    "AnswerConfig",
    "AnswerRubric",
    "AnyRubricConfig",
    "AnyTrace",
    "CleanupError",
    "CodeTest",
    "CodeTests",
    "CodeTestsConfig",
    "CodeTestsRubric",
    "CommandResult",
    "EnvironmentReturnConfig",
    "EnvironmentReturnRubric",
    "FileState",
    "HybridMathConfig",
    "HybridMathRubric",
    "JudgeError",
    "JudgeRubric",
    "JudgeRubricConfig",
    "RemoteHybridMathConfig",
    "RemoteHybridMathRubric",
    "Rubric",
    "RubricConfig",
    "RubricGroup",
    "RubricGroupConfig",
    "RubricTask",
    "SandboxFileError",
    "ScoringError",
    "SweProblem",
    "SweTestsConfig",
    "SweTestsRubric",
    "TaskTestsConfig",
    "TaskTestsRubric",
    "VerifyCommandsConfig",
    "VerifyCommandsRubric",
    "answer_text",
    "cleanup",
    "in_workdir",
    "live_rubric",
    "read_file",
    "require_alive",
    "rubrics_in_use",
    "run_checked",
    "run_cleanup",
    "run_command",
    "upload_bundle",
    "upload_content",
    "upload_file",
    "work_directory",
    "workdir_of",
]
