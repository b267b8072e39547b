"""Keys and bearer tokens do not reach the page, wherever they stand; ordinary text does."""

import json
import random
import time
from pathlib import Path

import pytest
from opencode_runs.report.cleaning import CAPS
from opencode_runs.report.masking import MASK, RULES, Masker

from tests.report import made
from tests.report.reading import packed, written

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA1c7\nabcDEF0123456789abcd\n-----END RSA PRIVATE KEY-----"
SECRETS = {
    "private key": (PEM, "MIIEpAIBAAKCAQEA1c7"),
    "end of a private key": ("abcDEF0123456789abcd\n-----END RSA PRIVATE KEY-----", "abcDEF0123456789abcd"),
    "bearer token": ("Authorization: Bearer abc123def456ghi", "abc123def456ghi"),
    "basic authorization": ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    "sk- key": ("key sk-proj-Ab12Cd34Ef56Gh78Ij", "Ab12Cd34Ef56Gh78Ij"),
    "GitHub token": ("ghp_abcdefghijklmnop1234", "abcdefghijklmnop1234"),
    "Hugging Face token": ("hf_abcdefghijklmnopqrst", "abcdefghijklmnopqrst"),
    "Prime key": ("pit_0123456789abcdef01", "0123456789abcdef01"),
    "Google key": ("AIzaSyA1234567890abcdefghij", "SyA1234567890"),
    "AWS key": ("AKIAABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
    "Slack token": ("xoxb-123456789012-abc", "123456789012"),
    "JSON web token": ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abc", "hbGciOiJIUzI1"),
    "password in an address": ("postgres://me:hunter2secret@db/x", "hunter2secret"),
    "value that is called like a secret": ('{"api_key": "a1b2c3d4e5f6"}', "a1b2c3d4e5f6"),
}
ORDINARY = (
    "the key of the dictionary, api_key = os.environ['KEY'], a basic understanding, bearer of bad news, "
    "http://localhost:8000/v1, password: str, sk-learn, 12:30@noon, tokens: 123456789012, num_total_tokens: 12345678"
)


def test_each_rule_has_an_example() -> None:
    assert set(SECRETS) == {rule.name for rule in RULES}


@pytest.mark.parametrize("rule", SECRETS)
def test_a_secret_is_masked_wherever_it_stands(rule: str, tmp_path: Path) -> None:
    text, secret = SECRETS[rule]
    masker = Masker()
    assert secret not in masker.text(text)
    assert masker.counts[rule] == 1
    trace = made.trace(1)
    trace["nodes"][3]["message"]["content"] = f"x {text} y"
    trace["nodes"][2]["message"]["tool_calls"][0]["arguments"] = json.dumps({"command": f"echo '{text}'"})
    trace["info"]["agent"]["log_tail"] = text
    trace["info"]["note"] = json.dumps({"text": text})
    trace["errors"] = [{"type": "E", "message": text, "traceback": text}]
    page = tmp_path / "page.html"
    index = written(made.write_run(tmp_path / "run", [made.episode(1, "t", trace)]), page=page)
    shown = json.dumps([index, packed(page, f"d{index['rows'][0]['detail']}")])
    assert secret not in shown
    assert shown.count(MASK) >= 6
    assert sum(index["masked"].values()) >= 6


@pytest.mark.parametrize("seed", range(8))
def test_looking_around_the_hints_finds_what_looking_everywhere_finds(seed: int) -> None:
    draw = random.Random(seed)
    parts = [
        *(text for text, _ in SECRETS.values()),
        *ORDINARY.split(", "),
        "task-",
        "x" * 300,
        '\\"',
        "\n",
        "a b c " * 40,
    ]
    text = " ".join(draw.choices(parts, k=60))
    everywhere = text
    for rule in RULES:
        everywhere = rule.pattern.sub(lambda match: match[0] if match[2] is None else match[1] + MASK, everywhere)
    masker = Masker()
    assert masker.text(text) == everywhere
    assert masker.counts.total() == everywhere.count(MASK) > 0


@pytest.mark.parametrize(
    "filling", ["QUJD" * 250_000, f"{'QUJD' * 19}\n" * 13_000, "eyJ" * 300_000, "-----BEGIN " * 90_000]
)
def test_a_megabyte_that_looks_like_a_key_is_read_in_a_moment(filling: str) -> None:
    begun = time.process_time()
    assert Masker().text(f"PRIVATE {filling}") == f"PRIVATE {filling}"
    assert time.process_time() - begun < 5


def test_ordinary_text_stays() -> None:
    masker = Masker()
    assert masker.text(ORDINARY) == ORDINARY
    assert not masker.counts


@pytest.mark.parametrize("shift", range(-40, 40, 7))
def test_a_secret_at_a_cut_is_masked_too(shift: int, tmp_path: Path) -> None:
    trace = made.trace(1)
    noise = "".join(chr(0x4E00 + (i * i) % 9000) for i in range(80_000))
    cut = CAPS[-1] - CAPS[-1] // 3 + shift
    trace["nodes"][3]["message"]["content"] = f"{noise[:cut]} sk-proj-Ab12Cd34Ef56Gh78IjKl90 {noise[cut:]}"
    page = tmp_path / "page.html"
    run = made.write_run(tmp_path / "run", [made.episode(1, "t", trace)])
    index = written(run, page=page, options=("--max-mb", "0.006"))
    assert index["cut"] > 0
    assert "Ab12Cd" not in json.dumps(packed(page, f"d{index['rows'][0]['detail']}"))
