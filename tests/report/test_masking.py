"""Keys and bearer tokens do not reach the page, wherever they stand; ordinary text does."""

import functools
import json
import random
import time
from pathlib import Path

import pytest
from opencode_runs.report.masking import MASK, RULES, Masker
from opencode_runs.report.packing import CAPS

from tests.report import made
from tests.report.reading import packed, written

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA1c7\nabcDEF0123456789abcd\n-----END RSA PRIVATE KEY-----"
SECRETS = {
    "private key": (PEM, "MIIEpAIBAAKCAQEA1c7"),
    "end of a private key": ("abcDEF0123456789abcd\n-----END RSA PRIVATE KEY-----", "abcDEF0123456789abcd"),
    "bearer token": ("Authorization: Bearer abc123def456ghi", "abc123def456ghi"),
    "authorization header": ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    "cookie": ("Set-Cookie: sid=a1b2c3d4e5f6; Path=/; theme=x", "a1b2c3d4e5f6"),
    "sk- key": ("key sk-proj-Ab12Cd34Ef56Gh78Ij", "Ab12Cd34Ef56Gh78Ij"),
    "GitHub token": ("ghp_abcdefghijklmnop1234", "abcdefghijklmnop1234"),
    "Hugging Face token": ("hf_abcdefghijklmnopqrst", "abcdefghijklmnopqrst"),
    "Prime key": ("pit_0123456789abcdef01", "0123456789abcdef01"),
    "Google key": ("AIzaSyA1234567890abcdefghij", "SyA1234567890"),
    "AWS key": ("AKIAABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
    "Slack token": ("xoxb-123456789012-abc", "123456789012"),
    "JSON web token": ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abc", "hbGciOiJIUzI1"),
    "token of another service": ("gsk_Ab12Cd34Ef56Gh78Ij90Kl", "Ab12Cd34Ef56Gh78Ij90Kl"),
    "webhook": ("https://hooks.slack.com/services/T00/B00/Ab12Cd34Ef56", "Ab12Cd34Ef56"),
    "password in an address": ("postgres://me:hunter2secret@db/x", "hunter2secret"),
    "token in an address": ("https://Ab12Cd34Ef56Gh78Ij90Kl@example.org/x", "Ab12Cd34Ef56Gh78Ij90Kl"),
    "key in an address": ("https://example.org/?key=Ab12Cd34Ef56Gh78Ij", "Ab12Cd34Ef56Gh78Ij"),
    "password on a command line": ("curl -s -u me:hunter-seven https://example.org", "hunter-seven"),
    "password": ("DB_PASSWORD=h@nter2!", "h@nter2!"),
    "value that is called like a secret": ('{"api_key": "a1b2c3d4e5f6"}', "a1b2c3d4e5f6"),
}
TEXTS = [text for text, _ in SECRETS.values()]
ORDINARY = (
    "the key of the dictionary, api_key = os.environ['KEY'], a basic understanding, bearer of bad news, "
    "http://localhost:8000/v1, password: str, sk-learn, 12:30@noon, tokens: 123456789012, num_total_tokens: 12345678, "
    "PWD=/data/project1/src, PASS: test_case_12, token = nn.Parameter(torch.zeros(100)), docker run -u 1000:1000, "
    "password = hash_password(row1), npm_config_registry_1_2_3_4_5, key-value-store-of-version-12, "
    "--password <PASSWORD>"
)
SERVICES = (
    "sk_live_Ab12Cd34Ef56Gh78Ij90",
    "glpat-Ab12Cd34Ef56Gh78Ij90",
    "npm_Ab12Cd34Ef56Gh78Ij90Kl",
    "pypi-AgEIcHlwaS5vcmcAb12Cd34Ef",
    "SG.Ab12Cd34Ef56Gh78Ij90Kl.Ab12Cd34Ef56Gh78",
    "xapp-1-A1B2-123456-0123456789abc",
    "dapi0123456789abcdef0123456789abcdef",
    "123456789:AAb12Cd34Ef56Gh78Ij90Kl12Mn34Op56Qr",
    "hvs.Ab12Cd34Ef56Gh78Ij90",
    "nvapi-Ab12-Cd34_Ef56Gh78Ij90",
    "ya29.Ab12Cd34Ef56Gh78Ij90",
    "key-0123456789abcdef0123456789abcdef",
)
NAMED = (
    "X-API-Key: {}", "x-auth-token: {}", "AccountKey={}", '{{"SessionToken": "{}"}}', "TOKEN={}", "Private-Token: {}",
    "SIGNING_KEY='{}'", '{{"private_key_id": "{}"}}', "api_key%3D{}", "api_key&quot;: &quot;{}", "api_key\\u003d{}",
    "\x1b[01;31m\x1b[Kapi_key\x1b[m\x1b[K={}",
)  # fmt: skip


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
    trace["nodes"][-1]["message"]["content"] = text
    trace["nodes"][2]["message"]["tool_calls"][0]["arguments"] = json.dumps({"command": f"echo '{text}'"})
    trace["info"]["agent"]["log_tail"] = text
    trace["info"]["note"] = json.dumps({"text": text})
    trace["errors"] = [{"type": "E", "message": text, "traceback": text}]
    page = tmp_path / "page.html"
    index = written(made.write_run(tmp_path / "run", [made.episode(1, "t", trace)]), page=page)
    shown = json.dumps([index, packed(page, f"d{index['rows'][0]['detail']}")])
    assert secret not in shown
    assert shown.count(MASK) >= 6
    assert sum(index["masked"].values()) == shown.count(MASK)


@pytest.mark.parametrize("token", SERVICES)
def test_a_token_is_known_by_its_beginning(token: str) -> None:
    assert token[:24] not in Masker().text(f"x {token} y")


@pytest.mark.parametrize("form", NAMED)
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_value_is_known_by_its_name_however_often_it_was_written_as_json(form: str, times: int) -> None:
    text = form.format("a1b2c3d4e5f6")
    for _ in range(times):
        text = json.dumps(text)
    assert "b2c3d4e5f6" not in Masker().text(text)


@pytest.mark.parametrize("before", ["\n", "\t", "\x1b[31m", "\x1b[m\x1b[K", "\x01", "é", "=", "(", "%3D", "\\n"])
@pytest.mark.parametrize("token", ["ghp_abcdefghijklmnop1234", "sk-proj-Ab12Cd34Ef56Gh78Ij", "AKIAABCDEFGHIJKLMNOP"])
def test_a_token_begins_anywhere_a_word_does(before: str, token: str) -> None:
    assert token not in Masker().text(before + token)
    assert token.encode() not in Masker().json(json.dumps({before + token: f"x{before}{token}\n"}).encode())


@pytest.mark.parametrize("seed", range(8))
def test_json_stays_json_whatever_is_masked_in_it(seed: int) -> None:
    draw = random.Random(seed)
    parts = [*TEXTS, *"\n\t\\\"'\x01é= :", "password=", "u0041", "A" * 16, "token: ", PEM[:40]]
    for _ in range(300):
        text = "".join(draw.choices(parts, k=8))
        for value in (text, json.dumps({text: text})):
            masker = Masker()
            json.loads(masker.json(json.dumps([value, {value: value}]).encode()))


@pytest.mark.parametrize("seed", range(8))
def test_looking_around_the_hints_finds_what_looking_everywhere_finds(seed: int) -> None:
    draw = random.Random(seed)
    parts = [*TEXTS, *ORDINARY.split(", "), "task-", "x" * 300, '\\"', "\n", "a b c " * 40]
    text = " ".join(draw.choices(parts, k=60))
    everywhere, count = text, Masker()
    for rule in RULES:
        everywhere = rule.pattern.sub(functools.partial(count.mask, rule=rule), everywhere)
    masker = Masker()
    assert masker.text(text) == everywhere
    assert masker.counts == count.counts
    assert count.counts


@pytest.mark.parametrize("part", ["QUJD", f"{'QUJD' * 19}\n", "-eyJ0", "-----BEGIN ", "sk-", "://a:"])
def test_a_long_text_that_looks_like_a_key_is_read_in_a_moment(part: str) -> None:
    text, begun = f"PRIVATE {part * (250_000 // len(part))}", time.process_time()
    assert Masker().text(text) == text
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
