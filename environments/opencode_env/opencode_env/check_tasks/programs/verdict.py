"""Prints 1 if the suite's log says that the task is solved, else 0: `verdict.py EXIT_CODE LOG`."""

import importlib
import json
import os
import sys

parsers = importlib.import_module("parsers")  # which stands beside this program

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "problem.json")) as file:
    problem = json.load(file)
code, path = sys.argv[1:]
with open(path, errors="replace") as file:
    log = file.read()
if problem["parser"] == "exit-code":
    lines = [line.strip() for line in log.splitlines() if line.startswith("OPENSWE_EXIT_CODE=")]
    said = lines[-1].partition("=")[2] if lines else code
    states = {parsers.EXIT_TEST: parsers.PASSED if said == "0" else parsers.FAILED}
else:
    states = parsers.PARSERS[problem["parser"]](log)
lists = [problem[name] for name in ("fail_to_pass", "pass_to_pass", "exact", "skipped_is_kept")]
solved = parsers.decided(*lists, states, problem["fail_only"])[2]
if code != "0" and problem["parser"] != "exit-code":
    solved = solved and any(state in parsers.BAD for state in states.values())
sys.stdout.write(f"{solved:d}\n")
