"""The programs that run `mathverdict` for the math rubrics: worker processes of the host, and the scorer in a sandbox.

Invariant: they import the standard library and `mathverdict` only, so that the same files run in the host's worker
processes and, as part of the scorer bundle, in a sandbox.
"""
