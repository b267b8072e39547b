"""The sample tasks on a Ray cluster of one machine: `python -m examples.cluster`."""
