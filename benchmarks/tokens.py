"""What a hostile conversation gives a trainer: branches and tokens, with the real OpenCode and a training client.

The model is a scripted engine with vLLM's token-in, token-out protocol and Qwen3's renderer. `tokens` is all tokens of
the trace's branches ÷ those of the last prompt and answer, which a conversation without forks consists of, for calls
that OpenCode rewrites when it sends them back ÷ the same for calls that it sends back as they are. The same calls, as
far as verifiers' client hands them on, are played behind verifiers' own server for comparison.

Run: uv run python benchmarks/tokens.py [--json]
"""

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path

# The repository, not this folder, belongs on the path.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from verifiers.v1.interception.server import InterceptionServer

from benchmarks._measure import machine, report
from tests.support.families import Qwen3, save_tokenizer
from tests.support.token_engine import Says
from tests.training.hostile import bash, hostile
from tests.training.trained import Trained, tokens, train

GOALS = {"branches": 1.0, "tokens": 1.0}
FAMILY = Qwen3(thinks=True)
HANDED_ON = (0, 1, 3, 4, 5)
"""Answers of the hostile conversation whose calls verifiers' client hands on."""


def described(played: Trained) -> str:
    """Branches, tokens and calls of a conversation."""
    total = sum(len(branch.token_ids) for branch in played.main.branches)
    return f"{played.main.num_branches} branches, {total} tokens, {len(played.engine.calls)} calls"


async def compare(tokenizer: Path) -> tuple[dict[str, float], dict[str, object]]:
    """The ratios, and what they come from."""
    odd = hostile(FAMILY)
    plain = [Says(FAMILY.answer("So", bash(FAMILY, f"echo {number}"), reasoning="Hm.")) for number in range(len(odd))]
    hostile_one, plain_one = await train(tokenizer, FAMILY, odd), await train(tokenizer, FAMILY, plain)
    few = [odd[number] for number in HANDED_ON]
    ours = await train(tokenizer, FAMILY, few)
    theirs = await train(tokenizer, FAMILY, few, server=InterceptionServer)
    ratios = {"branches": float(hostile_one.main.num_branches), "tokens": tokens(hostile_one) / tokens(plain_one)}
    return ratios, {
        "hostile": described(hostile_one),
        "spelled as it is sent back": described(plain_one),
        "calls that verifiers hands on, ours": described(ours),
        "calls that verifiers hands on, its own server": described(theirs),
        **machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as directory:
        ratios, detail = asyncio.run(compare(save_tokenizer(Path(directory))))
    report("tokens", ratios, GOALS, detail, as_json=options.json)


if __name__ == "__main__":
    main()
