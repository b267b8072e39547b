"""Sample `arithmetic-orders`: the failing path forgets the loaves that are given away."""

from opencode_env.scripted_model.solutions.calls import Solution, turn, write

SOLUTION = Solution(
    solve=(
        turn(
            "44 of 48 and 88 of 96 loaves are paid for: 5 * 44 + 2 * 88 = 396 loaves, 1584 euros.",
            write("/app/answer.txt", "1584\n"),
            reasoning="Every twelfth loaf is free: 48 / 12 = 4 on a working day, 96 / 12 = 8 at the weekend.",
        ),
        turn("The bakery takes 1584 euros in a week."),
    ),
    fail=(
        turn(
            "5 * 48 + 2 * 96 = 432 loaves, 1728 euros.",
            write("/app/answer.txt", "1728\n"),
        ),
        turn("The bakery takes 1728 euros in a week."),
    ),
)
