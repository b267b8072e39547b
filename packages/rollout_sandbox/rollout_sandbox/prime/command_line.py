"""The command `opencode-sandboxes`: Prime sandboxes that a killed run left behind, found by label and deleted."""

import argparse
import json
import sys
import time
from collections.abc import Sequence

from prime_sandboxes import Sandbox, SandboxClient

from rollout_sandbox.prime.ownership import OWN_LABEL, delete_sandboxes, list_sandboxes, platform
from rollout_sandbox.prime.sdk_errors import SDK_ERRORS, reason_of

_PROG = "opencode-sandboxes"
_OK, _FAILED, _WRONG_USE = 0, 1, 2
_PAUSES_S = (0.0, 1.0, 3.0)
"""Before looks at what is left: a deletion may take a while, and a list that others leave meanwhile may miss some."""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(_PROG, description="Prime sandboxes that environments of ours asked for.")
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="print those that live")
    cleaning = commands.add_parser("clean", help="delete those that live and carry every --label")
    for command in (listing, cleaning):
        label = "a label that they carry, such as a run's VF_RUN_ID; repeatable"
        command.add_argument("--label", action="append", default=[], help=label)
        command.add_argument("--json", action="store_true", help="print one JSON document")
    cleaning.add_argument("--dry-run", action="store_true", help="print what would be deleted, and delete nothing")
    cleaning.add_argument("--yes", action="store_true", help="delete without asking")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: 0 when all was done, 1 when something lives on that should not, 2 for a wrong use."""
    options = build_parser().parse_args(arguments)
    if options.command == "clean" and set(options.label) <= {OWN_LABEL}:
        why = "without one it would delete every run's sandboxes"
        return _complain(f"clean wants at least one --label beside {OWN_LABEL}: {why}", _WRONG_USE)
    try:
        with platform() as client:
            return _run(client, options)
    except SDK_ERRORS as error:
        return _complain(reason_of(error).replace("\n", " "), _FAILED)
    except (EOFError, KeyboardInterrupt):
        return _complain("interrupted: some may live on, list shows them", _FAILED)


def _run(client: SandboxClient, options: argparse.Namespace) -> int:
    labels = [OWN_LABEL, *options.label]
    found = list_sandboxes(client, labels)
    _show(found, as_json=options.json)
    if options.command == "list" or options.dry_run or not found:
        return _OK
    if not options.yes and not _agreed(len(found)):
        return _complain("nothing was deleted", _FAILED)
    agreed, left, failed = {one.id for one in found}, found, dict[str, str]()
    for pause in _PAUSES_S:
        failed |= delete_sandboxes(client, [one.id for one in left if options.yes or one.id in agreed])
        time.sleep(pause)
        if not (left := list_sandboxes(client, labels)):
            break
    for one in left:
        _complain(f"{one.id} was not deleted: {failed.get(one.id, 'it is there still, or came meanwhile')}", _FAILED)
    print(f"{len(agreed - {one.id for one in left})} of {len(agreed)} deleted", file=sys.stderr)  # noqa: T201
    return _FAILED if left else _OK


def _show(found: Sequence[Sandbox], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([sandbox.model_dump(mode="json", exclude_none=True) for sandbox in found], indent=2))  # noqa: T201
        return
    for one in found:
        started = one.created_at.isoformat(timespec="seconds")
        line = f"{one.id}  {one.status:<12}  {started}  {one.docker_image}  {','.join(one.labels)}"
        print("".join(letter if letter.isprintable() else "\ufffd" for letter in line))  # noqa: T201


def _agreed(count: int) -> bool:
    if not sys.stdin.isatty():
        _complain("standard input is not a terminal to ask at: give --yes", _WRONG_USE)
        return False
    return input(f"delete these {count}? [y/N] ").strip().lower() in ("y", "yes")


def _complain(message: str, exit_code: int) -> int:
    print(f"{_PROG}: {message}", file=sys.stderr)  # noqa: T201
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
