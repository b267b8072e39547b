"""What is handed out with a sampled token is what a trainer computes again over the whole sequence."""

import pytest
import torch

from examples.learn.curriculum import CONTENT, QUESTION
from examples.learn.model import sample
from tests.learn.setting import RECORDED, Setting, setting

PROMPTS = [[5, 6, 7], [9], [1, 2, 3, 4, 5, 6, 7, 8]]


def recomputed(made: Setting, prompt: list[int], said: list[int]) -> list[float]:
    """Log-probabilities of an answer, in one pass and without a cache."""
    with torch.inference_mode():
        logits = made.policy(torch.tensor([[*prompt, *said]]))[0].log_softmax(-1)
    return [float(logits[len(prompt) + place - 1, token]) for place, token in enumerate(said)]


def test_logprobs_of_a_batch_are_those_of_each_sequence_alone() -> None:
    made = setting()
    for prompt, spoken in zip(PROMPTS, made.speak(PROMPTS, longest=20), strict=True):
        assert spoken.logprobs == pytest.approx(recomputed(made, prompt, spoken.tokens), abs=1e-5)


def test_an_answer_ends_with_its_stop_or_at_its_length() -> None:
    made = setting()
    stop = made.speak(PROMPTS, longest=5)[0].tokens[-1]  # one that it says
    answers = sample(made.policy, PROMPTS * 40, frozenset({stop}), 30, made.noise)
    assert any(spoken.stopped for spoken in answers)
    for spoken in answers:
        assert (spoken.tokens[-1] == stop) == spoken.stopped
        assert stop not in spoken.tokens[:-1]
        assert spoken.stopped or len(spoken.tokens) == 30


def test_tokens_are_drawn_as_often_as_their_probability_says() -> None:
    made = setting()
    with torch.inference_mode():
        expected = made.policy(torch.tensor([PROMPTS[0]]))[0, -1].softmax(-1)
    drawn = torch.tensor([spoken.tokens[0] for spoken in made.speak([PROMPTS[0]] * 4000, longest=1)])
    often = torch.bincount(drawn, minlength=len(expected)) / len(drawn)
    likely = int(expected.argmax())
    assert float(often[likely]) == pytest.approx(float(expected[likely]), abs=0.04)


def test_the_tokenizer_keeps_every_character_and_reads_the_recorded_prompt_whole() -> None:
    words = setting().words
    text = RECORDED.filled({QUESTION: "é{}\n \t red", CONTENT: "oak"}).given[0]
    ids = words.encode(text, add_special_tokens=False)
    assert words.decode(ids) == text
    assert len(words.encode("system\nYou work.", add_special_tokens=False)) == 1
    tokens, mask = RECORDED.filled({QUESTION: "red", CONTENT: "oak"}).encoded(words)
    said = [token for token, own in zip(tokens, mask, strict=True) if own]
    assert words.decode(said) == "".join(RECORDED.filled({QUESTION: "red", CONTENT: "oak"}).said)
