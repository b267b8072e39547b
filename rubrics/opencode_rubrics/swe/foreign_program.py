"""The process that reads logs with a parser of another package: a line of JSON for each line on standard input.

It needs nothing of ours, and so runs by its path with any Python from 3.10 on that has the package. Of a row, it says
the command by which `swesmith` tests it. What the package lacks is answered as `error`; a parser that fails on a log is
the log's doing, and nothing is in it then.
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

_STATES = {"PASS": "PASSED", "FAIL": "FAILED", "SKIP": "SKIPPED"}


def reader_of(parser: str, options: dict[str, Any]) -> Callable[[str], dict[str, str]]:
    """Return what reads a log; a `LookupError` if the package has no such parser."""
    family, _, name = parser.partition(":")
    if family == "swebench":
        parse = import_module("swebench.harness.log_parsers").PARSER_REGISTRY[name]
        spec = import_module("swebench.types").TestSpec
        fields = {"instance_id": "", "image": "", "eval_script_list": [], "repo": "", "version": ""}
        made = spec(**{**fields, **options}, FAIL_TO_PASS=[], PASS_TO_PASS=[])
        return lambda log: dict(parse(log, made))
    if family == "swesmith":
        profile = import_module("swesmith.profiles").registry.get(name)
        return lambda log: dict(profile.log_parser(log))
    import_module("multi_swe_bench.harness")
    requests = import_module("multi_swe_bench.harness.pull_request")
    org, _, repo = name.partition("/")
    texts = {"title": "", "body": "", "fix_patch": "", "test_patch": "", "state": ""}
    given = {"number": int(options.get("number", 1)), "number_interval": str(options.get("number_interval", ""))}
    base = requests.Base(label="", ref="", sha=str(options.get("sha", "")))
    request = requests.PullRequest(
        org=org, repo=repo, base=base, resolved_issues=[], tag=str(options.get("tag", "")), **texts, **given
    )
    config = import_module("multi_swe_bench.harness.image").Config(need_clone=False, global_env=None, clear_env=False)
    instance = import_module("multi_swe_bench.harness.instance").Instance.create(request, config)

    def read(log: str) -> dict[str, str]:
        result = instance.parse_log(log)
        return {test: _STATES.get(status.value, status.value) for test, status in result._tests.items()}

    return read


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """The `command` of a row, or the `states` in a log."""
    try:
        if (row := asked.get("row")) is not None:
            return {"command": import_module("swesmith.profiles").registry.get_from_inst(row).get_test_cmd(row)[0]}
        read = reader_of(asked["parser"], asked["options"])
    except Exception as error:  # noqa: BLE001 - whatever another package raises where it lacks something
        return {"error": f"{type(error).__name__}: {error}"}
    try:
        found = read(asked["log"])
    except Exception as error:  # noqa: BLE001 - see the module's docstring
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        found = {}
    return {"states": {str(name): str(getattr(status, "value", status)) for name, status in found.items()}}


def main() -> None:
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
