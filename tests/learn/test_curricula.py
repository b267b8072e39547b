"""Of every curriculum: cloning tells nothing of the answers, the evaluation is fresh, and a shell agrees with the bare
function about what an answer is worth."""

import random
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from opencode_runs.trainable.samples import TrainingSample

from examples.learn.__main__ import CURRICULA
from examples.learn.bare import play_bare
from examples.learn.carrying import Carry
from examples.learn.checkpoint import key_of
from examples.learn.copying import Copy
from examples.learn.curriculum import ANSWER_FILE, CONTENT, KEY, KEY_FILE, QUESTION, REPLY, Curriculum, fill
from examples.learn.recursion import Recursion
from examples.learn.rollouts import Rollout
from examples.learn.sanity import unearned
from examples.learn.spoken import Spoken
from examples.learn.tokenizer import ASSISTANT, END, build_tokenizer
from examples.learn.transcript import Transcript, full, of_the_format, turns
from tests.learn.setting import PROMPT

FILLED = (QUESTION, CONTENT, KEY, REPLY)
EACH = pytest.mark.parametrize("curriculum", CURRICULA.values(), ids=CURRICULA)


def right(curriculum: Curriculum, draw: random.Random) -> dict[str, str]:
    """What a policy that solves a fresh problem says."""
    (problem,) = curriculum.fresh(draw, 1)
    if isinstance(curriculum, Copy):
        return {QUESTION: problem.question, CONTENT: problem.answer}
    halves = {QUESTION: problem.answer[:2], CONTENT: problem.answer[2:4]}
    return {**halves, KEY: problem.answer[4:6], REPLY: problem.answer[6:]}


@EACH
def test_demonstrations_are_worth_chance(curriculum: Curriculum) -> None:
    draw = random.Random(0)
    problems = {(problem.question, problem.key): problem for problem in curriculum.problems(draw, 16)}
    if isinstance(curriculum, Copy):
        problems = {(q, ""): problem for q in curriculum.questions[0] for problem in [curriculum.problem(q)]}
    rewards = [
        problem.reward(fill(curriculum.answer, shown))
        for _ in range(200)
        for shown in curriculum.demonstrations(draw)
        if (problem := problems.get((shown[QUESTION], shown.get(KEY, ""))))
    ]
    assert len(rewards) > 200
    assert sum(rewards) / len(rewards) == pytest.approx(curriculum.chance, abs=0.05)


@EACH
def test_a_shell_and_the_bare_function_agree_about_answers(curriculum: Curriculum, tmp_path: Path) -> None:
    draw = random.Random(0)
    seen: Counter[float] = Counter()
    for shown in [*curriculum.demonstrations(draw)][:6]:
        (problem,) = curriculum.fresh(draw, 1)
        for written in (problem.answer, fill(curriculum.answer, shown), problem.answer[:-1], ""):
            (tmp_path / ANSWER_FILE).write_text(written)
            codes = [subprocess.run(["sh", "-c", one], cwd=tmp_path, check=False).returncode for one in problem.verify]
            assert problem.reward(written) == codes.count(0) / len(codes)
            seen[problem.reward(written)] += 1
    assert seen[1.0] >= 6
    assert seen[0.0] >= 6


def test_questions_of_the_copy_evaluation_occur_neither_in_cloning_nor_in_training() -> None:
    curriculum, draw = Copy(), random.Random(0)
    fresh = {problem.question for problem in curriculum.fresh(draw, 500)}
    assert len(fresh) == 16
    assert not fresh & {shown[QUESTION] for _ in range(50) for shown in curriculum.demonstrations(draw)}
    assert not fresh & {problem.question for _ in range(50) for problem in curriculum.problems(draw, 8)}


def test_only_the_key_file_says_what_a_sub_call_must_complete(tmp_path: Path) -> None:
    (problem,) = Recursion().fresh(random.Random(0), 1)
    assert problem.key not in problem.question
    subprocess.run(["sh", "-c", problem.setup[0]], cwd=tmp_path, check=True)
    assert (tmp_path / KEY_FILE).read_text() == problem.key


def conversations(curriculum: Carry) -> list[Transcript]:
    """What is given and said before the compaction, in it and behind it."""
    before, summary, behind = ([text + END for text in script] for script in curriculum.scripts)
    more = f"\n<|im_start|>user\nok<|im_end|>\n{ASSISTANT}\n"
    filled = more.replace("ok", f"{KEY} {'o ' * 40}")
    asked = f"<|im_start|>user\nSummarise {KEY} now.<|im_end|>\n{ASSISTANT}\n"
    begun = PROMPT.replace(QUESTION, f"{QUESTION}<|im_end|>\n{ASSISTANT}\n{CONTENT}<|im_end|>\n<|im_start|>user\nGo on")
    return [
        Transcript((PROMPT, filled), tuple(before)),
        Transcript((asked,), tuple(summary)),
        Transcript((begun, more), tuple(behind)),
    ]


@pytest.mark.parametrize(("name", "samples"), [("carry", 3), ("carry-frozen", 2)])
def test_behind_a_compaction_only_the_summary_tells_the_key(name: str, samples: int) -> None:
    curriculum = CURRICULA[name]
    assert isinstance(curriculum, Carry)
    recorded, words = conversations(curriculum), build_tokenizer()
    problem = curriculum.problem("b")

    def played(note: str, reply: str) -> tuple[Rollout, str]:
        heard: list[str] = []
        filling = {QUESTION: problem.question, KEY: problem.key, CONTENT: note, REPLY: reply}
        script = iter([fill(text, filling) for one in recorded for text in one.said])

        def speak(prompts: Sequence[Sequence[int]]) -> list[Spoken]:
            heard.extend(map(words.decode, prompts))
            said = words.encode(next(script), add_special_tokens=False)
            return [Spoken(said, [-1.0] * len(said), stopped=True)]

        (rollout,) = play_bare(speak, recorded, words, curriculum, [("b", problem)])
        assert len(rollout.samples) == samples
        assert not unearned([rollout], curriculum, recorded, words)
        assert unearned([replace(rollout, reward=1 - rollout.reward)], curriculum, recorded, words)
        return rollout, heard[3]

    held, begun = played("3b", "B")
    assert held.reward == 1.0
    assert "3b" in begun
    lost, begun = played("1x", "X")
    assert lost.reward == 0.0
    assert "1x" in begun
    assert "3b" not in begun
    assert recorded[2].answers(begun + recorded[2].said[0]) == [recorded[2].said[0]], "a copy was said elsewhere"
    assert full(recorded, words) > max(recorded[2].lengths(words))


@pytest.mark.parametrize(("broken", "trained"), [(None, 5), (1, 2), (2, 3), (4, 5)])
def test_nothing_trains_behind_the_first_answer_that_is_not_of_the_format(broken: int | None, trained: int) -> None:
    recorded, words = conversations(Carry()), build_tokenizer()
    said = iter(range(5))
    samples = []
    for one in recorded:
        texts = tuple("no call" + END if next(said) == broken else text for text in one.said)
        tokens, mask = replace(one, said=texts).filled(dict.fromkeys(FILLED, "b")).encoded(words)
        samples.append(TrainingSample(0, (), (), tokens, mask, [0.0] * len(tokens)))
    left = of_the_format(samples, recorded, words)
    assert [one.token_ids for one in left] == [one.token_ids for one in samples]
    assert sum(own for one in left for own, _ in turns(one)) == trained


def test_a_summary_that_trains_or_not_follows_from_the_same_cloned_policy() -> None:
    recorded, words = conversations(Carry()), build_tokenizer()
    same, other = Carry("frozen"), Carry("frozen", needed=False)
    assert key_of(recorded, Carry(), words, 0) == key_of(recorded, same, words, 0)
    assert key_of(recorded, same, words, 0) != key_of(recorded, other, words, 0)


def test_what_does_not_fill_the_window_is_no_curriculum() -> None:
    short = conversations(Carry())
    with pytest.raises(RuntimeError, match="nothing fills the window"):
        full([short[1], short[1], short[2]], build_tokenizer())


@pytest.mark.parametrize("name", ["recursion", "recursion-frozen"])
def test_a_sub_call_trains_where_it_is_in_the_trajectory(name: str) -> None:
    curriculum = CURRICULA[name]
    recorded = [
        Transcript((PROMPT, f"\n<|im_start|>user\nok<|im_end|>\n{ASSISTANT}\n"), tuple(one + END for one in main))
        if number == 0
        else Transcript((f"<|im_start|>user\n{KEY}<|im_end|>\n{ASSISTANT}\n",), (main[0] + END,))
        for number, main in enumerate(curriculum.scripts)
    ]
    words, draw = build_tokenizer(), random.Random(3)
    (problem,) = curriculum.fresh(draw, 1)
    solved = right(curriculum, random.Random(3)) | {QUESTION: problem.question, KEY: problem.key}

    def speak(prompts: object) -> list[Spoken]:
        assert isinstance(prompts, list)
        answers = []
        for text in map(words.decode, prompts):
            script = curriculum.scripts["printf" not in text and "system" not in text]
            said = fill(script[text.count(ASSISTANT) - 1], solved) + END
            answers.append(Spoken(words.encode(said, add_special_tokens=False), [-1.0] * len(said), True))
        return answers

    (rollout,) = play_bare(speak, recorded, words, curriculum, [("one", problem)])
    assert rollout.reward == 1.0
    assert len(rollout.samples) == (2 if name == "recursion" else 1)
