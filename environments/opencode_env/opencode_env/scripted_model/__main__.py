"""The scripted model as a program: `python -m opencode_env.scripted_model`.

Once its start-up line is out and its port file is there it answers, and SIGTERM or SIGINT ends it with exit code 0 and
removes the port file.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from pydantic import TypeAdapter

from opencode_env.scripted_model.policy import LABEL, Fault, FaultyPolicy, Policy, ScriptPolicy
from opencode_env.scripted_model.server import ScriptedModel
from opencode_env.scripted_model.shipped_policies import SamplesPolicy, ToolsPolicy, WorldsPolicy

_EXAMPLES = """\
examples:
  # solve 70 % of the sample tasks, always the same ones
  python -m opencode_env.scripted_model --port 8000 --success-rate 0.7 --seed 0

  # play the shipped worlds of opencode_simulation
  python -m opencode_env.scripted_model --port 8000 --policy worlds

  # play any world: ten calls by chance of its tools, with arguments that their schemas allow
  python -m opencode_env.scripted_model --port 8000 --policy tools --tools 'shop_*'

  # a fixed script: script.json holds
  #   [{"text": "I look.", "tool_calls": [{"name": "bash", "arguments": {"command": "ls"}}],
  #     "faults": [{"kind": "status", "status": 429, "attempts": 2}]},
  #    {"text": "Done."}]
  python -m opencode_env.scripted_model --port 8000 --script script.json

  # the samples, but the second call of every conversation is cut once: faults.json holds
  #   {"1": [{"kind": "cut", "attempts": 1}]}
  python -m opencode_env.scripted_model --port 8000 --faults faults.json
"""


def _policy(options: argparse.Namespace) -> Policy:
    policy: Policy
    if options.script is not None:
        policy = ScriptPolicy.load(options.script)
    elif options.policy == "worlds":
        policy = WorldsPolicy()
    elif options.policy == "tools":
        policy = ToolsPolicy(options.tools, options.turns, options.seed)
    else:
        policy = SamplesPolicy(options.success_rate, options.seed)
    if options.faults is None:
        return policy
    faults = TypeAdapter(dict[int, tuple[Fault, ...]]).validate_json(options.faults.read_bytes())
    return FaultyPolicy(policy, faults)


async def _serve(options: argparse.Namespace, policy: Policy) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    model = ScriptedModel(policy, host=options.host, port=options.port, delay=options.delay, record=False)
    async with model:
        if options.port_file is not None:  # at once, so that whoever waits for the file never reads half of it
            partial = options.port_file.with_name(f".{options.port_file.name}.{os.getpid()}")
            partial.write_text(f"{model.port}\n")
            partial.replace(options.port_file)
        sys.stdout.write(f"{LABEL}: {model.base_url}\n")
        sys.stdout.flush()
        try:
            await stopped.wait()
        finally:
            if options.port_file is not None:
                options.port_file.unlink(missing_ok=True)


def main() -> None:
    """Run until a signal; exit code 2 for bad options or files, 1 when the address is taken."""
    parser = argparse.ArgumentParser(
        prog="python -m opencode_env.scripted_model",
        description=f"An OpenAI-compatible model server that plays scripts ({LABEL}). "
        "It prints its URL when it is ready and ends on SIGTERM or SIGINT.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one (default)")
    parser.add_argument("--port-file", type=Path, help="file to write the port to, once it answers")
    parser.add_argument(
        "--policy",
        choices=["samples", "worlds", "tools"],
        default="samples",
        help="what answers when no --script is given (default: samples)",
    )
    parser.add_argument("--tools", default="*", help="policy tools: pattern of the tools that it calls (default: all)")
    parser.add_argument("--turns", type=int, default=10, help="policy tools: calls of a conversation (default: 10)")
    parser.add_argument("--script", type=Path, help="JSON file of fixed scripts, instead of a policy")
    parser.add_argument("--faults", type=Path, help="JSON file: faults by turn (from 0) of every conversation")
    parser.add_argument(
        "--success-rate", type=float, default=0.7, help="share of solved rollouts (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the outcomes (default: %(default)s)")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before every answer (default: 0)")
    options = parser.parse_args()
    try:
        policy = _policy(options)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    try:
        asyncio.run(_serve(options, policy))
    except OSError as error:
        sys.exit(f"the scripted model cannot listen on {options.host}:{options.port}: {error.strerror}")


if __name__ == "__main__":
    main()
