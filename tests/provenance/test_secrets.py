"""What is masked in diffs and command lines, and what is left as it is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ditk_ray.provenance.secrets import mask_arguments, mask_text

# Secrets in these tests are put together, so that no scanner takes them for real ones.
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
HEX = "0123456789abcdef0123456789abcdef01234567"
BASE64_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"

LITERALS = [
    ('password = "hunter2"', 'password = "***"'),
    ("passwd='hunter2'", "passwd='***'"),
    ('db_password: str = "hunter2"', 'db_password: str = "***"'),
    ('token: str | None = "abc"', 'token: str | None = "***"'),
    ('self._api_key = b"abc"', 'self._api_key = b"***"'),
    ('"api-key": "abc",', '"api-key": "***",'),
    ("'accessKey' : 'abc'", "'accessKey' : '***'"),
    ('APIKey => "abc"', 'APIKey => "***"'),
    ('os.environ["SECRET_KEY"] = "abc"', 'os.environ["SECRET_KEY"] = "***"'),
    ('{\\"token\\": \\"abc\\"}', '{\\"token\\": \\"***\\"}'),
    ('token = """abc', 'token = """***'),
    ('token = "a\\"b" + c', 'token = "***" + c'),
    ('f(user="me", password="it is", n=3)', 'f(user="me", password="***", n=3)'),
    ('x = {"a": 1, "token": "abc"}', 'x = {"a": 1, "token": "***"}'),
    ('token = "never closed', 'token = "***'),
    ('setenv("API_TOKEN", "abc")', 'setenv("API_TOKEN", "***")'),
    ('run(["tool", "--token", "abc"])', 'run(["tool", "--token", "***"])'),
    ("DB_PASSWORD=correcthorse", "DB_PASSWORD=***"),
    ("+export DB_PASSWORD=correcthorse", "+export DB_PASSWORD=***"),
    ("      - DB_PASSWORD=correcthorse", "      - DB_PASSWORD=***"),
    ("DB_PASSWORD=ab(c),d;e", "DB_PASSWORD=***"),
    ('password = ")abc"', 'password = "***"'),
    ("AccountName=me;AccountKey=abc+/12==;x", "AccountName=me;AccountKey=***;x"),
    ("-password=correcthorse", "-password=***"),
    ("+    password: correcthorse", "+    password: ***"),
    ("    password: hunter2  # mine", "    password: ***  # mine"),
    ("password = p@ss!word", "password = ***"),
    ("secret: 123456", "secret: ***"),
    ("private_key = a1b2c3d4e5", "private_key = ***"),
    ("tool --token abc123 --verbose", "tool --token *** --verbose"),
    ("tool --api-key=abc/123 -v", "tool --api-key=*** -v"),
    ("http://host/path?access_token=abc", "http://host/path?access_token=***"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = ***"),
    ("X-Api-Key: 0123abcd4567", "X-Api-Key: ***"),
    ("http://host/?key=abc&token=hunter2", "http://host/?key=abc&token=***"),
    ("set the key password=hunter2!", "set the key password=***"),
    ('keys = "password=hunter2!"', 'keys = "password=***"'),
    ('"keyword", "token": "abc"', '"keyword", "token": "***"'),
    ("password = aGVsbG8x= # mine", "password = *** # mine"),
    ("password = my_secret_1234", "password = ***"),
    ('API_KEY=b"abc"', 'API_KEY=b"***"'),
    ("export password=correcthorse", "export password=***"),
]


@pytest.mark.parametrize(("text", "masked"), LITERALS, ids=[text for text, _ in LITERALS])
def test_a_literal_with_the_name_of_a_secret_is_masked(text: str, masked: str) -> None:
    assert mask_text(text) == masked


ORDINARY = [
    "max_tokens = 512",
    "token_id = 3",
    "tokenizer = Foo()",
    'tokenizer = "gpt2"',
    "num_key = 4",
    'key = "policy.learn"',
    "policy.learn.learning_rate=0.001",
    "password = getpass()",
    'password = os.environ["X"]',
    'password = os.environ.get("PASSWORD")',
    "password = args.password",
    "    password=password",
    "token = next(tokens)",
    "token = tokens[0]",
    "token = None",
    "token: str",
    "token: str | None = None",
    "token: torch.Tensor",
    "def f(token: int, secret: bool = False) -> str:",
    "if token == other and not secret:",
    "for token in tokens:",
    "lambda token: token",
    "token: int64",
    "token += 1",
    "'Token': lambda: self._token,",
    "if token := page.token:",
    'password = getpass("Password: ")',
    'print("the token " + token + " is")',
    'print("token: " + token + " is")',
    'raise ValueError("bad token: %r" % token)',
    "def credentials(self) -> auth.Credentials:  # noqa",
    f"https://host/wandb/blob/{HEX}/file.py",
    "abfs://files@account/path",
    "token = 3",
    "secret = 0.5",
    'pad_token = "[PAD]"',
    'eos_token = "</s>"',
    'bos_token="<s>"',
    'eos_token = "stop"',
    "eos_token = 1234",
    'token_type = "bearer"',
    'password_file = "a/b"',
    'parser.add_argument("--token", "-t", help="the token")',
    'parser.add_argument("--token", help="the token")',
    'password = ""',
    'password = "${PASSWORD}"',
    'password = f"{password}"',
    'token = "<your token>"',
    "PASSWORD=$PASSWORD",
    "PASSWORD=${PASSWORD}",
    "TOKEN=$(cat file)",
    "the token flag, --token to set it",
    "# a secret: the sampler draws without replacement",
    "sk-learn-contrib-and-other-things",
    "task-0123456789012345678901234567890",
    'headers={"Authorization": f"Bearer {token}"}',
    '_TOKEN = "RAY_AUTH_TOKEN"',
    "import secrets",
    "secrets.token_hex(32)",
    "index 3b18e512dba79e4c8300dd08aeb37f8e728b8dad..0cfbf08886fca9a91cb753ec8734c84fcbe52c9f",
    "http://localhost:8080/path@version",
    "ssh://git@host/repository",
    'f"postgres://{user}:{password}@{host}"',
    "eyJ is how JSON begins in base64",
    "Basic understanding of things",
    "a basic 2-layer network",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_code_is_left_as_it_is(text: str) -> None:
    assert mask_text(text) == text


SHAPES = {
    "AWS": "AKIA" + "IOSFODNN7EXAMPLE",
    "GitHub": "ghp_" + LETTERS[:36],
    "GitHub, fine-grained": "github_pat_" + LETTERS[:22] + "_" + LETTERS[:59],
    "GitLab": "glpat-" + LETTERS[:20],
    "AWS user": "AIDA" + "IOSFODNN7EXAMPLE",
    "Slack": "xoxb-" + "123456789012-abcdefghij",
    "Google": "AIza" + LETTERS[:35],
    "OpenAI": "sk-" + "proj-" + LETTERS[:40],
    "Anthropic": "sk-" + "ant-api03-" + LETTERS[:40],
    "Hugging Face": "hf_" + LETTERS[:34],
    "npm": "npm_" + LETTERS[:36],
    "a JWT": "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0." + LETTERS[:43],
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_token_is_known_by_its_shape(name: str) -> None:
    assert mask_text(f"+x = f({SHAPES[name]!r})  # mine") == "+x = f('***')  # mine"


@pytest.mark.parametrize(
    "text", [f"wandb login {HEX}", f"wandb.login(key='{HEX}')", f"api key is {HEX}"]
)
def test_forty_hexadecimal_digits_are_masked_beside_words_that_say_what_they_are(text: str) -> None:
    assert mask_text(text) == text.replace(HEX, "***")
    assert mask_text(f"wandb\ncommit {HEX}") == f"wandb\ncommit {HEX}"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("http://me:pass@host:80/a", "http://me:***@host:80/a"),
        ("postgresql+psycopg://me:p@ss@host/db", "postgresql+psycopg://me:***@host/db"),
        ("https://abcdef@host/a.git", "https://***@host/a.git"),
        ("https://abcdef:x-oauth-basic@host", "https://***@host"),
        ("a http://b:c@d and http://e:f@g", "a http://b:***@d and http://e:***@g"),
        ("http://host/?next=http://b:c@d", "http://host/?next=http://b:***@d"),
        ("Authorization: Bearer abcd", "Authorization: Bearer ***"),
        ("'authorization': 'Basic dXNlcjpwYXNz'", "'authorization': '***'"),
        ("-H 'Authorization: Basic dXNlcjpwYXNz'", "-H 'Authorization: Basic ***'"),
        ('f"Bearer abc123def456ghi"', 'f"Bearer ***"'),
        (
            f"https://hooks.slack.com/services/{LETTERS[:24]}",
            "https://hooks.slack.com/services/***",
        ),
    ],
)
def test_credentials_in_urls_and_headers_are_masked(text: str, masked: str) -> None:
    assert mask_text(text) == masked


def test_a_private_key_is_masked_line_by_line_in_a_diff() -> None:
    begin, end = "-----BEGIN RSA PRIVATE " + "KEY-----", "-----END RSA PRIVATE " + "KEY-----"
    lines = [begin, "Proc-Type: 4,ENCRYPTED", "", BASE64_LINE, "abcd", "abcd==", end, "pass"]

    for prefix in ("", "+", "-", " "):
        masked = mask_text("\n".join(prefix + line for line in lines)).split("\n")

        wanted = [begin, "***", "", "***", "***", "***", end, "pass"]
        assert masked == [prefix + line for line in wanted]


def test_a_private_key_on_one_line_is_masked() -> None:
    begin = "-----BEGIN PRIVATE " + "KEY-----"
    text = f'"key": "{begin}\\n{BASE64_LINE}\\n-----END PRIVATE KEY-----\\n",'

    assert mask_text(text) == f'"key": "{begin}***'


def test_a_private_key_of_which_a_diff_shows_only_the_middle_is_masked() -> None:
    text = f"@@ -3,4 +3,4 @@\n {BASE64_LINE}\n+{BASE64_LINE}\n-x = 1"

    assert mask_text(text) == "@@ -3,4 +3,4 @@\n ***\n+***\n-x = 1"


def test_masking_again_changes_nothing() -> None:
    for text, masked in LITERALS:
        assert mask_text(masked) == masked, text


def test_our_own_code_is_left_as_it_is() -> None:
    package = Path(__file__).resolve().parents[2] / "ditk_ray"
    for path in package.rglob("*.py"):
        if path.name.startswith("secrets"):
            continue
        assert mask_text(path.read_text()) == path.read_text(), path


@pytest.mark.parametrize(
    "arguments",
    [
        ["--token", "***"],
        ["--password=***", "-v"],
        ["--set", "env.api_key=***"],
        ["--mlflow_uri", "http://me:***@host"],
        ["--mlflow_uri=http://me:***@host/?token=***"],
        ["API_KEY=***", "tool"],
        ["--header", "Authorization: Bearer ***"],
    ],
    ids=" ".join,
)
def test_what_options_with_the_name_of_a_secret_are_given_is_masked(arguments: list[str]) -> None:
    given = [argument.replace("***", "correcthorse") for argument in arguments]

    assert mask_arguments(given) == arguments


@pytest.mark.parametrize(
    "arguments",
    [
        ["ditk-ray", "tune", "--cfg_file", "my_job.py", "--name", "first"],
        ["--set", "policy.learn.learning_rate=0.001"],
        ["--max_tokens", "512", "--token-id=3"],
        ["--set", "policy.model.cls_token=5", "num_token=5", "model.action_token=x"],
        ["--token", "--verbose", "x"],
        ["--token"],
        [],
    ],
    ids=" ".join,
)
def test_other_options_are_left_as_they_are(arguments: list[str]) -> None:
    assert mask_arguments(arguments) == arguments


MIB = 1024 * 1024


@pytest.mark.parametrize(
    "part",
    [
        *("a", "a.", "a=", "token=", "token='", 'token="\\"', "token: a ", "--token ", "://", "@"),
        *("eyJaaaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", " ", "${", "password" * 50 + " "),
    ],
    ids=repr,
)
def test_a_long_line_takes_a_moment(part: str) -> None:
    text = part * (MIB // len(part))
    begun = time.process_time()

    mask_text(text)

    assert time.process_time() - begun < 10


def test_a_line_of_five_megabytes_takes_a_moment() -> None:
    begun = time.process_time()

    assert mask_text("x" * 5 * MIB + ' token = "abc"').endswith(' token = "***"')

    assert time.process_time() - begun < 10
