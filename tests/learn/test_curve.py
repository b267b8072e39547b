"""What a run says of itself at its end."""

from pathlib import Path

from examples.learn.curve import Step, rates, save_plot, terminal_plot


def step(number: int, reward: float, **stages: float) -> Step:
    return Step(number, 30 * number, reward, 1, 4, 900, 1e-6, 0.5, 0, 0, {"play": 59.0, "learn": 1.0, **stages})


def test_rates_are_those_of_the_whole_run() -> None:
    steps = [step(1, 0.0, opencode=60.0, sandbox=20.0), step(2, 0.0, opencode=90.0, sandbox=30.0)]
    assert (
        rates(steps) == "30.0 rollouts a minute; trainer 1.7% of the clock; of a rollout opencode 75.0%, sandbox 25.0%"
    )
    assert rates([step(1, 0.0)]) == "30.0 rollouts a minute; trainer 1.7% of the clock"


def test_a_column_of_the_plot_is_as_high_as_the_reward_of_its_step() -> None:
    *rows, _ = terminal_plot([step(1, 0.0), step(2, 0.5), step(3, 1.0)]).splitlines()
    assert [sum(row[place] == "█" for row in rows) for place in (-3, -2, -1)] == [0, 5, 10]


def test_the_picture_is_written(tmp_path: Path) -> None:
    save_plot([step(1, 0.0), step(2, 0.5)], 0.25, "two steps", tmp_path / "learn.png")
    assert (tmp_path / "learn.png").read_bytes().startswith(b"\x89PNG")
