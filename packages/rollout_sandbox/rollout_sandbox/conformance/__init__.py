"""Does a runtime keep what a sandbox for agents has to promise? `python -m rollout_sandbox.conformance RUNTIME` tells.

The suite is pytest's: each promise is a test of any runtime of verifiers, its name says what is broken, and its
docstring what to change in a runtime that breaks it. A skipped one cannot be asked of the runtime. `test_abilities`
walks `rollout_sandbox.interface`. The suite for agents (`opencode_env.conformance`) is run by the same `run_suite`.
"""
