"""How fast and how small `opencode-difficulty rate` is, next to plain `json.loads` over the same lines.

Two kinds of runs are made in a temporary folder, which is removed: `text`, episodes as `vf-eval` writes them (long
messages), and `tokens`, episodes with token ids and logprobs as the training client records them. Each side reads
the whole file from the page cache, one line at a time, in a process of its own, several rounds; CPU
time is compared, because other work on the machine does not change it much.

    uv run python benchmarks/_difficulty_rate.py [--megabytes 1000] [--json]
"""

import argparse
import json
import random
import resource
import string
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

GOAL = 0.8
ROUNDS = 3
TOKEN_SHARE = 0.25
"""The `tokens` file is this part of the size asked for; it takes longer to parse."""
TASKS = 500
TEMPLATES = 40


def main() -> None:
    """Make the runs, time both sides, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=("rate", "loads"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        _side(options.side, options.file)
        return
    report = _measure(options.megabytes)
    for kind, figures in report.items():
        print(f"{kind}: " + ", ".join(f"{name} {value:,.2f}" for name, value in figures.items()))
    if options.json:
        ratios = {f"rate_speed_{kind}": round(figures["ratio"], 3) for kind, figures in report.items()}
        print(
            json.dumps(
                {"name": "difficulty_rate", "ratios": ratios, "goals": dict.fromkeys(ratios, GOAL), "detail": report}
            )
        )


def _measure(megabytes: int) -> dict[str, dict[str, float]]:
    report = {}
    with tempfile.TemporaryDirectory(prefix="difficulty-bench-") as folder:
        for kind, size in (("text", megabytes), ("tokens", megabytes * TOKEN_SHARE)):
            file = Path(folder) / "traces.jsonl"
            lines = _write_run(file, int(size * 1e6), tokens=kind == "tokens")
            times: dict[str, list[float]] = {"rate": [], "loads": []}
            peaks: dict[str, float] = {}
            for _ in range(ROUNDS):
                for side, seconds in times.items():
                    took, peaks[side] = _run_side(side, file)
                    seconds.append(took)
            rate, loads = median(times["rate"]), median(times["loads"])
            written = file.stat().st_size / 1e6
            report[kind] = {
                "megabytes": written,
                "lines": lines,
                "rate_mb_per_s": written / rate,
                "loads_mb_per_s": written / loads,
                "ratio": loads / rate,
                "rate_peak_mb": peaks["rate"],
                "loads_peak_mb": peaks["loads"],
            }
            file.unlink()
    return report


def _run_side(side: str, file: Path) -> tuple[float, float]:
    command = [sys.executable, __file__, "--side", side, "--file", str(file)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    seconds, peak = json.loads(output.splitlines()[-1])
    return seconds, peak


def _side(side: str, file: Path) -> None:
    """Read `file` one way; print CPU seconds (imports not counted) and peak memory in MB."""
    from opencode_runs.difficulty.rate import rate

    start = time.process_time()
    if side == "rate":
        assert rate([file]).attempts > 0
    else:
        with file.open("rb") as lines:
            for line in lines:
                json.loads(line)
    seconds = time.process_time() - start
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3]))


def _write_run(file: Path, size: int, *, tokens: bool) -> int:
    """Write at least `size` bytes of episodes; return how many."""
    chance = random.Random(0)
    words = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 9))) for _ in range(3000)]
    templates = [json.dumps(_episode(chance, words, tokens)) for _ in range(TEMPLATES)]
    written = lines = 0
    with file.open("w", encoding="utf-8") as out:
        while written < size:
            line = templates[lines % TEMPLATES].replace("EPISODE", f"{lines:032x}", 1)
            line = line.replace("TASK", f"task-{lines % TASKS}", 1)
            line = line.replace('"score": 0.5', f'"score": {chance.random() < 0.4:d}', 1)
            written += out.write(line + "\n")
            lines += 1
    return lines


def _episode(chance: random.Random, words: list[str], tokens: bool) -> dict[str, object]:
    """An episode of a dozen turns in the shape of verifiers 0.4, with marks where lines differ."""
    task = {"type": "OpenCodeTask", "key": "TASK", "hash": "0" * 64, "data": {"prompt": _text(chance, words, 1500)}}
    nodes = [_node(chance, words, index, tokens) for index in range(24)]
    calls = [
        {"node": index, "model": "m", "endpoint": "/chat/completions", "finish_reason": "tool_calls",
         "usage": {"prompt_tokens": 5000, "completion_tokens": 400}, "time": {"start": 1.0, "end": 2.5}}
        for index in range(1, 24, 2)
    ]  # fmt: skip
    trace = {
        "version": 1,
        "id": "0" * 32,
        "verifiers": {"version": "0.4.0"},
        "task": task,
        "agent": {"config": {"model": "m", "sampling": {"temperature": 1.0}}, "name": "agent", "trainable": True},
        "nodes": nodes,
        "calls": calls,
        "rewards": {"passed": {"score": 0.5, "weight": 1.0}},
        "metrics": {"num_turns": 12.0, "total_tool_calls": 11.0},
        "ok": True,
        "stop_condition": "agent_completed",
        "errors": [],
        "num_total_tokens": 9000,
        "num_output_tokens": 4000,
    }
    return {"id": "EPISODE", "env": {"id": "opencode-env"}, "task": task, "ok": True, "errors": [], "traces": [trace]}


def _node(chance: random.Random, words: list[str], index: int, tokens: bool) -> dict[str, object]:
    sampled = index % 2 == 1
    count = 600 if tokens else 0
    return {
        "parent": index - 1 if index else None,
        "message": {
            "role": "assistant" if sampled else "tool",
            "content": _text(chance, words, chance.randint(500, 6000)),
        },
        "sampled": sampled,
        "timestamp": 1.7e9 + index,
        "token_ids": [chance.randrange(150_000) for _ in range(count)],
        "mask": [sampled] * count,
        "is_content": [True] * count,
        "logprobs": [round(-chance.random(), 4) for _ in range(count if sampled else 0)],
    }


def _text(chance: random.Random, words: list[str], length: int) -> str:
    """Lines of words with the quotes and escapes that code has."""
    lines = (" ".join(chance.choices(words, k=10)) + ' = "x"\n' for _ in range(length // 75 + 1))
    return "".join(lines)


if __name__ == "__main__":
    main()
