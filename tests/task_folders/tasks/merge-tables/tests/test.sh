#!/bin/bash
python3 - <<'PYTHON' >/logs/verifier/reward.txt
import json, os
try:
    with open("total.json") as file:
        found = json.load(file)
    right = abs(found["total"] - 5.80) <= float(os.environ["TOLERANCE"]) and found["currency"] == "EUR"
except (OSError, ValueError, KeyError, TypeError):
    right = False
print(1 if right else 0)
PYTHON
