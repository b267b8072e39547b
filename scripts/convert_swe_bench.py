# /// script
# requires-python = ">=3.11"
# dependencies = ["swebench==4.1.0"]
# ///
"""Rows of SWE-bench as they were before release 5, with what later rows say themselves.

That is `image`, `eval_script`, `log_parser` and `eval_type`, which were a table in `swebench` up to 4.1.0. Its packages
do not fit beside ours: `uv run` makes an environment of its own. The new rows are read with `swebench` 5.
"""

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file, or of one with a JSON list."""
    text = path.read_text(encoding="utf-8")
    if text.lstrip().startswith("["):
        found: list[dict[str, Any]] = json.loads(text)
        return found
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def converted(row: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The row with what release 5 reads in it; a `LookupError` if swebench does not know its repository or version."""
    known = import_module("swebench.harness.constants")
    if row["repo"] not in known.MAP_REPO_VERSION_TO_SPECS:
        raise LookupError(f"swebench does not know the repository {row['repo']}")
    if row["version"] not in known.MAP_REPO_VERSION_TO_SPECS[row["repo"]]:
        raise LookupError(f"swebench does not know version {row['version']} of {row['repo']}")
    specs: Any = import_module("swebench.harness.test_spec.test_spec")
    # How its image was made: for that, lists of requirements would be fetched from the network, row by row.
    specs.make_env_script_list = lambda *_: []
    made = specs.make_test_spec(row, namespace=namespace)
    parsers = import_module("swebench.harness.log_parsers").MAP_REPO_TO_PARSER
    fail_only = row["repo"] in known.FAIL_ONLY_REPOS
    return {
        **row,
        "image": made.instance_image_key,
        "eval_script": made.eval_script,
        "log_parser": parsers[row["repo"]].__name__,
        "eval_type": "fail_only" if fail_only else "pass_and_fail",
    }


def said(error: Exception) -> str:
    """What is wrong in words; of another's exception, its type too."""
    return str(error) if type(error) is LookupError else f"{type(error).__name__}: {error}"


def main() -> int:
    """Convert all rows; one that cannot be is told, and left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="JSONL or a JSON list, as SWE-bench Verified before release 5")
    parser.add_argument("new_rows", type=Path, help="JSONL, which --env.taskset.dataset takes")
    parser.add_argument("--namespace", default="swebench", help="registry namespace of the images (default: swebench)")
    options = parser.parse_args()
    rows, failed = rows_of(options.rows), 0
    with options.new_rows.open("w", encoding="utf-8") as file:
        for row in rows:
            try:
                file.write(json.dumps(converted(row, options.namespace)) + "\n")
            except Exception as error:  # noqa: BLE001 - whatever its tables and its look-ups on the network raise
                failed += 1
                sys.stderr.write(f"{row.get('instance_id')} is left out: {said(error)}\n")
    sys.stderr.write(f"{len(rows) - failed} of {len(rows)} rows are converted\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
