"""What those find who carry the project on: hooks, workflows, templates, licences, a changelog in a known form."""

import re
import tomllib

import pytest
import yaml

from tests.docs.pages import ROOT
from tests.test_workspace import MEMBERS, Distribution

KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_a_commit_and_a_push_are_held_against_what_make_check_runs() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    wanted = re.findall(r"@\$\(RUN\) (.*)", recipe)
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["name"] for hook in repository["hooks"]] == wanted
    assert [hook["entry"] for hook in repository["hooks"]] == [f".venv/bin/{command}" for command in wanted]


def test_the_workflow_runs_what_ci_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert steps[-1] == ".ci/run"
    assert workflow["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("name", ["bug.yml", "feature.yml"])
def test_an_issue_template_asks_for_something_and_needs_it(name: str) -> None:
    template = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text())
    assert {"name", "description", "body"} <= template.keys()
    assert any(part.get("validations", {}).get("required") for part in template["body"])


@MEMBERS
def test_a_distribution_has_the_licence_links_and_classifiers(member: Distribution) -> None:
    project = tomllib.loads((member.directory / "pyproject.toml").read_text())["project"]
    assert project["license-files"] == ["LICENSE"]
    assert (member.directory / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert project["urls"]
    assert {"Typing :: Typed", "Operating System :: POSIX :: Linux"} <= set(project["classifiers"])


def test_the_changelog_is_in_the_form_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", version) for version in versions[1:])
    kinds = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert set(kinds) <= KINDS
    assert len(kinds) == len(set(kinds)) or len(versions) > 1
