"""The labelled corpus: the verdicts of worker processes on the host, and of the scorer in the sandbox."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import verifiers.v1 as vf
from opencode_rubrics import HybridMathConfig, HybridMathRubric, RemoteHybridMathConfig, RemoteHybridMathRubric
from opencode_rubrics.math.scorer_bundle import ensure_bundle
from rollout_sandbox.compat import abilities_of
from rollout_sandbox.confined import Bind, LocalSandboxConfig, provision_confined

from tests.mathverdict.corpora import pairs_of
from tests.rubrics.math_support import pool_of, score
from tests.support.sizes import WHOLE, size

PAIRS = pairs_of("pairs")


@pytest.mark.usefixtures("programs")
async def test_the_rules_agree_with_every_label_on_the_host() -> None:
    with pool_of(2) as pool:
        results = await asyncio.gather(*(pool.verify(pair.reference, pair.text, "file", 10) for pair in PAIRS))
    assert [pair for pair, result in zip(PAIRS, results, strict=True) if result.right != pair.right] == []


@pytest.fixture
async def box_with_bundle(sandboxes: None) -> AsyncIterator[vf.Runtime]:
    bundle = await ensure_bundle()
    async with provision_confined(LocalSandboxConfig(), [Bind(bundle.library, bundle.target)]) as box:
        yield box


_IN_THE_BOX = """
import json, sys
sys.path.append(sys.argv[1])
from mathverdict.verdict import verify_text
pairs = [json.loads(line) for line in open("/app/pairs.jsonl", encoding="utf-8")]
print(json.dumps([verify_text(pair["reference"], pair["answer"], "file").right for pair in pairs]))
"""


async def test_the_rules_agree_with_every_label_in_the_sandbox(box_with_bundle: vf.Runtime) -> None:
    bundle = await ensure_bundle()
    pairs = PAIRS if WHOLE else PAIRS[1::8]  # the code is the host's
    lines = (json.dumps({"reference": pair.reference, "answer": pair.text}) for pair in pairs)
    await box_with_bundle.write("/app/pairs.jsonl", "\n".join(lines).encode())
    python = abilities_of(box_with_bundle).trusted_python or "python3"
    result = await box_with_bundle.run([python, "-I", "-S", "-c", _IN_THE_BOX, bundle.target], {})
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout) == [pair.right for pair in pairs]


async def test_both_rubrics_reward_and_reason_alike(box_with_bundle: vf.Runtime) -> None:
    host = HybridMathRubric(HybridMathConfig(answer_source="file"))
    remote = RemoteHybridMathRubric(RemoteHybridMathConfig())
    try:
        for pair in PAIRS[:: size(160, 40)]:
            await box_with_bundle.write("/app/answer.txt", pair.text.encode())
            there = await score(remote, box_with_bundle, pair.reference)
            here = await score(host, box_with_bundle, pair.reference)
            assert (there.reward, there.reason) == (here.reward, here.reason) == (float(pair.right), there.reason)
            assert (there.record["place"], here.record["place"]) == ("sandbox", "host")
    finally:
        await host.teardown()


@pytest.mark.parametrize(
    ("question", "reference", "answer", "options", "reward"),
    [
        ("What percent of the tanks are empty?", "35", r"35\%", {}, 1.0),
        ("How many tanks are empty?", "35", r"35\%", {}, 0.0),
        ("What is it?", "0.67", "2/3", {"accept_unrounded": True}, 1.0),
        ("What is it?", "0.67", "2/3", {}, 0.0),
    ],
)
async def test_both_rubrics_hand_the_question_and_the_options_to_the_rules(
    box_with_bundle: vf.Runtime, question: str, reference: str, answer: str, options: dict[str, bool], reward: float
) -> None:
    await box_with_bundle.write("/app/answer.txt", answer.encode())
    reply = HybridMathRubric(HybridMathConfig(max_workers=1, **options))
    file = HybridMathRubric(HybridMathConfig(max_workers=1, answer_source="file", **options))
    remote = RemoteHybridMathRubric(RemoteHybridMathConfig(**options))
    try:
        places = []
        for rubric in (reply, file, remote):
            scored = await score(rubric, box_with_bundle, reference, rf"\boxed{{{answer}}}", prompt=question)
            assert scored.reward == reward
            places.append(scored.record["place"])
        assert places == ["host", "host", "sandbox"]
    finally:
        await reply.teardown()
        await file.teardown()
