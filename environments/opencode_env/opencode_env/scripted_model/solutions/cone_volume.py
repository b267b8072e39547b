"""Sample `cone-volume`: the failing path forgets the third."""

from opencode_env.scripted_model.solutions.calls import Solution, bash, turn

SOLUTION = Solution(
    solve=(
        turn(
            "The radius is 12 / 2 = 6, the volume (1/3) * pi * 6^2 * 7.",
            bash("python3 -I -c 'print(6 ** 2 * 7 / 3)'"),
            reasoning="A third of the base area times the height.",
        ),
        turn("The cone holds $\\frac{1}{3}\\pi \\cdot 36 \\cdot 7$ cubic centimetres: \\boxed{84π \\text{ cm}^3}"),
    ),
    fail=(
        turn("The radius is 6, the base area 36 pi.", bash("python3 -I -c 'print(6 ** 2 * 7)'")),
        turn("Base area times height is \\boxed{252\\pi}."),
    ),
)
