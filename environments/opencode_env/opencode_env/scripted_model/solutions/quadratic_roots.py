"""Sample `quadratic-roots`: the failing path loses one of the two roots."""

from opencode_env.scripted_model.solutions.calls import Solution, turn, write

SOLUTION = Solution(
    solve=(
        turn(
            "(x - 3)^2 = 2, so x is 3 plus or minus the root of 2.",
            write("/app/answer.txt", "x = 3 - sqrt(2) or x = 3 + sqrt(2)\n"),
            reasoning="x^2 - 6x + 9 = 2.",
        ),
        turn("Both roots are in /app/answer.txt."),
    ),
    fail=(
        turn("(x - 3)^2 = 2, so x is 3 plus the root of 2.", write("/app/answer.txt", "3 + sqrt(2)\n")),
        turn("The root is in /app/answer.txt."),
    ),
)
