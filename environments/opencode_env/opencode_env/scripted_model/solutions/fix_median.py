"""Sample `fix-median`: the failing path makes the visible tests pass and forgets that values come in any order."""

from opencode_env.scripted_model.solutions.calls import Solution, bash, edit, read, turn

_BUG = """    middle = len(values) // 2
    if len(values) % 2:
        return values[middle]
    return (values[middle] + values[middle + 1]) / 2
"""
_FIX = """    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
"""
_HALF_FIX = """    middle = len(values) // 2
    if len(values) % 2:
        return values[middle]
    return (values[middle - 1] + values[middle]) / 2
"""
_LOOK = (
    turn("I run the tests first.", bash("python3 -m unittest test_stats")),
    turn("Now the code.", read("/app/stats.py"), reasoning="The even case of median fails."),
)
_RUN = turn("I run the tests again.", bash("python3 -m unittest test_stats"))

SOLUTION = Solution(
    solve=(
        *_LOOK,
        turn("The list is not sorted, and the two middle values are wrong.", edit("/app/stats.py", _BUG, _FIX)),
        _RUN,
        turn("`median` sorts a copy of its values now and takes the two middle ones; all tests pass."),
    ),
    fail=(
        *_LOOK,
        turn("The two middle values are off by one.", edit("/app/stats.py", _BUG, _HALF_FIX)),
        _RUN,
        turn("`median` takes the right two middle values now; all tests pass."),
    ),
)
