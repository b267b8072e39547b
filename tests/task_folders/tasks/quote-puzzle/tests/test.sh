#!/bin/bash
if cmp -s message.txt /tests/expected.txt; then echo 1.0; else echo 0.0; fi >/logs/verifier/reward.txt
