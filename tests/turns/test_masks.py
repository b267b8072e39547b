"""What of a rollout that goes on from a kept turn trains: nothing from before it, nor where it goes another way."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opencode_env.kept_turns.continued import Continued
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage

from tests.turns.test_format import made

DIGEST = made().digest


def node(parent: int | None) -> MessageNode:
    """One answer of a policy, as a training client leaves it."""
    said = AssistantMessage(content="x")
    return MessageNode(parent=parent, message=said, sampled=True, token_ids=[1], mask=[True], logprobs=[-0.5])


def trace(*parents: int | None) -> Any:
    """A trace of such answers."""
    made: Any = SimpleNamespace(nodes=[node(parent) for parent in parents], info={"branch": {}}, metrics={})
    made.record_metric = made.metrics.__setitem__
    return made


@pytest.mark.parametrize(
    ("digest", "forks", "parent", "trains"),
    [(DIGEST, None, 1, True), ("e" * 64, None, 1, False), (DIGEST, {"forks": 1}, 1, False), (DIGEST, None, 0, False)],
    ids=["same", "other request", "forked before", "forks with it"],
)
def test_main_and_sub_calls_train_only_behind_the_same_request(
    digest: str, forks: object, parent: int, trains: bool
) -> None:
    main, sub = trace(None, 0, parent), trace(None, None)
    continued = Continued(made(), {"forks": forks}, seeded=2, seeded_sub=1, leaf=1)
    assert not continued.asked(digest)
    continued.mask_own(main, sub)
    trained = [[list(one.mask) for one in each.nodes] for each in (main, sub)]
    assert trained == [[[True], [True], [trains]], [[True], [trains]]]  # what was before is masked at the end
    continued.finish(main, sub)
    trained = [[list(one.mask) for one in each.nodes] for each in (main, sub)]
    assert trained == [[[False], [False], [trains]], [[False], [trains]]]
    assert main.info["branch"] == {"same_request": digest == DIGEST, "forked": forks is not None or parent == 0}
    assert main.metrics == {"own_turns": 1.0}


@pytest.mark.parametrize(
    ("digest", "resumed", "known"), [(DIGEST, True, True), (DIGEST, False, False), ("", True, False)]
)
def test_only_a_resumed_rollout_that_asks_the_same_gets_the_answer_that_was_noted(
    digest: str, resumed: bool, known: bool
) -> None:
    assert Continued(made(place=Path()), {}, resumed).asked(digest) is known
