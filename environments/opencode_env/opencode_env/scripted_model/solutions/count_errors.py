"""Sample `count-errors`: the failing path counts the word ERROR wherever it stands in a line."""

from opencode_env.scripted_model.solutions.calls import Solution, bash, glob, grep, turn

_FIND = turn("I look for the log files.", glob("**/*.log"))
_COUNT = "find /app/logs -name '*.log' -exec cat {} + | awk '$3 == \"ERROR\"' | wc -l > /app/answer.txt"
_COUNT_WORDS = "find /app/logs -name '*.log' -exec cat {} + | grep -c ERROR > /app/answer.txt"

SOLUTION = Solution(
    solve=(
        _FIND,
        turn(
            "Now the lines.",
            grep("ERROR", "*.log"),
            reasoning="Some messages may hold the word too; only the third field is the level.",
        ),
        turn("The word also stands in messages, so I compare the third field.", bash(_COUNT)),
        turn("The number of lines with the level ERROR is in /app/answer.txt."),
    ),
    fail=(
        _FIND,
        turn("I count the lines.", bash(_COUNT_WORDS)),
        turn("The number of ERROR lines is in /app/answer.txt."),
    ),
)
