#!/bin/bash
python3 /tests/score.py "$PWD" >/logs/verifier/reward.json
