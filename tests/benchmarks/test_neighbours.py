"""The benchmark of hostile neighbours, with one cheap attack and one neighbour: it attacks, and says what it saw."""

import pytest

from tests.benchmarks.forked import result_of

pytestmark = pytest.mark.usefixtures("light_opencode")


def test_an_attack_is_held_back_with_the_protections_on_and_not_without() -> None:
    result = result_of("neighbours.py", "--rows", "connections", "--rollouts", "6", "--bare-rollouts", "6")
    assert result["name"] == "neighbours"
    assert set(result["ratios"]) == {"connections", "errors"} == set(result["goals"])
    protected, bare = (result["detail"][f"connections{which}"] for which in ("", ", without protections"))
    assert result["ratios"]["errors"] == 0, protected
    assert protected["held_to_limit"] < 1 <= bare["held_to_limit"], result["detail"]
