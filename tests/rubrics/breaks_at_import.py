"""A module of a rubric that fails while it is imported."""

raise RuntimeError("this module breaks")
