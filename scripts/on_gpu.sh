#!/bin/sh
# vLLM on a GPU with the training client: what a trainer would get, how fast, and how idle the engine is meanwhile.
#   scripts/on_gpu.sh MODEL RENDERER [further options of vf-eval]
# AT_ONCE rollouts play at once (64), EACH of each sample (7). VLLM is vLLM's command (vllm), PORT its port (8000),
# ENGINE_OPTIONS further options of it. URL names an engine that runs already, TOKENIZER the directory of a tokenizer that
# the name of the model does not name.
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
model=$1 renderer=$2
shift 2
PATH="$PWD/.venv/bin:$PATH"
at_once=${AT_ONCE:-64} url=${URL:-http://127.0.0.1:${PORT:-8000}/v1} name=on-gpu-$$
run=outputs/$name
mkdir -p outputs
trap 'kill $engine $watch 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
engine='' watch=''

answers() { python -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1] + "/models", timeout=5)' "$url" 2>/dev/null; }

if [ -z "${URL:-}" ]; then
    minor=$(${VLLM:-vllm} --version 2>/dev/null | sed -n 's/.*\b0\.\([0-9][0-9]*\)\..*/\1/p' | tail -1)
    [ "${minor:-0}" -ge 30 ] && scale=--enable-scale-out || scale='' # without it /inference/v1/generate is not served
    # shellcheck disable=SC2086
    ${VLLM:-vllm} serve "$model" --host 127.0.0.1 --port "${PORT:-8000}" --max-model-len 32768 \
        --max-num-seqs "$at_once" --logprobs-mode processed_logprobs $scale ${ENGINE_OPTIONS:-} >"$run.vllm.log" 2>&1 &
    engine=$!
    until answers; do
        kill -0 $engine 2>/dev/null || { tail -20 "$run.vllm.log" >&2; exit 1; }
        sleep 2
    done
fi
answers || { echo "$url does not answer" >&2; exit 1; }

python - "${url%/v1}/metrics" >"$run.running" <<'END' &
import re, sys, time, urllib.request
while True:  # each second: requests that run, tokens sampled so far
    text = urllib.request.urlopen(sys.argv[1], timeout=60).read().decode()
    named = ("num_requests_running", "generation_tokens_total")
    print(time.time(), *(sum(map(float, re.findall(rf"(?m)^vllm:{name}\S* (\S+)$", text))) for name in named), flush=True)
    time.sleep(1)
END
watch=$!

vf-eval opencode-env -m "$model" --client.type train --client.base-url "$url" --client.api-key-var NO_SUCH_KEY \
    --client.renderer.name "$renderer" ${TOKENIZER:+--client.renderer-model-name "$TOKENIZER"} \
    -c "$at_once" -r "${EACH:-7}" --sampling.temperature 1.0 --sampling.max-tokens 2048 --env.agent.max-turns 20 \
    --no-push --no-rich --output-dir outputs --run.name "$name" "$@" >/dev/null
kill $watch

opencode-trainable "$run" --check --seq-len 32768 && checked=sound || checked='not sound: see above'

python - "$run" "$url" "$model" "$checked" <<'END'
import json, pathlib, statistics, sys, urllib.request
from verifiers.v1.trace import WireTrace
from verifiers.v1.utils.trace_store import read_episodes

run, url, model, checked = sys.argv[1:]
traces = [trace for episode in read_episodes(pathlib.Path(run), WireTrace) for trace in episode.traces if trace.ok]
if not traces:
    raise SystemExit("no rollout ended well")
branches = [branch for trace in traces for branch in trace.branches if len(branch.token_ids)]

def forced(ids):
    """What the engine says of each token of a sequence that it is given."""
    body = {"model": model, "token_ids": ids, "sampling_params": {"max_tokens": 1, "prompt_logprobs": 0}}
    place = url.removesuffix("/v1") + "/inference/v1/generate"
    asked = urllib.request.Request(place, json.dumps(body).encode(), {"Content-Type": "application/json"})
    found = json.load(urllib.request.urlopen(asked, timeout=600))["prompt_logprobs"]
    return [None if one is None else one[str(token)]["logprob"] for one, token in zip(found, ids)]

off = []
for branch in sorted(branches, key=lambda one: len(one.token_ids))[:8]:
    said, ids = list(branch.logprobs), [int(token) for token in branch.token_ids]
    if not len(said) == len(ids) == len(branch.sampled_mask):
        raise SystemExit("a branch has not one log-probability for each token")
    again = forced(ids)
    off += [abs(said[n] - again[n]) for n, own in enumerate(branch.sampled_mask) if own]
rows = [[float(part) for part in line.split()] for line in open(f"{run}.running") if len(line.split()) == 3]
seconds, running = rows[-1][0] - rows[0][0], [row[1] for row in rows]
print(f"""
| | |
| --- | --- |
| rollouts that ended well, branches | {len(traces)}, {len(branches)} |
| turns, sampled tokens | {sum(trace.num_turns for trace in traces)}, {sum(sum(node.mask) for trace in traces for node in trace.nodes)} |
| `opencode-trainable --check` | {checked} |
| log-probabilities against the engine's of the same tokens, as a prompt | {len(off)} tokens of at most 8 branches: off by {statistics.fmean(off):.4f} on average, {max(off):.4f} at most |
| rollouts a minute, sampled tokens a second | {60 * len(traces) / seconds:.2f}, {(rows[-1][2] - rows[0][2]) / seconds:.1f} |
| seconds in which the engine had nothing to do | {100 * sum(not one for one in running) / len(running):.0f} % of {seconds:.0f} |
| requests at the engine, on average | {statistics.fmean(running):.1f} |""")
END
