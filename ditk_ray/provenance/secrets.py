"""Likely secrets: in the names of variables and files, in texts, in command lines.

Meant for the diffs and commands that are kept beside a sweep. What a literal is
given to has to have the name of a secret, or the literal its shape; names and calls
are not secrets. A guess, in both directions: better to mask a word too many.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import PurePosixPath

MASK = "***"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRETS = {
    *("password", "passwords", "passwd", "passphrase", "secret", "secrets", "token"),
    *("credential", "credentials", "apikey", "accesskey", "privatekey", "authorization"),
}
_KINDS_OF_KEY = {"api", "access", "private", "account", "auth", "encryption", "signing", "wandb"}

# What is said about a secret, or about the tokens of a text, is not a secret.
_ABOUT = {
    *("id", "ids", "type", "types", "kind", "name", "names", "file", "files", "path", "dir"),
    *("folder", "url", "uri", "len", "length", "size", "count", "num", "number", "index", "idx"),
    *("dim", "limit", "max", "min", "rate", "ttl", "expiry", "mask", "embed", "embedding"),
    *("embeddings", "shape", "ratio", "prob", "probs", "usage", "var", "column", "regex"),
    *("separator", "policy", "class", "mode", "manager"),
}
_OF_A_TEXT = {
    *("pad", "bos", "eos", "unk", "sep", "cls", "mask", "special", "stop", "start", "end", "begin"),
    *("image", "text", "word", "sub", "max", "min", "num", "n", "per", "next", "prev", "previous"),
    *("first", "last", "current", "new", "each", "every", "class", "action", "state", "reward"),
}
_FILES = (
    *(".env", ".env.*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore"),
    *("*.kdbx", "*.ovpn", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*credentials*"),
    *("client_secret*", "service[-_]account*.json", "secrets.*", ".secrets*", ".netrc", "_netrc"),
    *(".pypirc", ".npmrc", ".pgpass", ".htpasswd", "htpasswd", ".dockercfg", "kubeconfig*"),
    *(".git-credentials", ".vault-token", "*.keytab", "token.json", "token.txt", ".token"),
    *("*.ppk", "*.tfstate", "*.tfvars"),
)
_FOLDERS = {".ssh", ".aws", ".gnupg", ".kube", ".docker"}
_HARMLESS_FILES = ("*.pub", "*.py", "*.md", "*.rst", "*.example", "*.sample", "*.template")
_MAX_NAME = 200


def is_secret_name(name: str) -> bool:
    """Say whether what has this name is likely to be a secret; `max_tokens` is not."""
    words = [word.lower() for word in _WORD.findall(name[-_MAX_NAME:])]
    if not words or words[-1] in _ABOUT:
        return False
    found = _SECRETS.intersection(words)
    if found == {"token"} and words[-1] == "token":
        return len(words) == 1 or words[-2] not in _OF_A_TEXT
    has_key = any(kind in _KINDS_OF_KEY and word == "key" for kind, word in pairwise(words))
    return has_key or bool(found)


def is_secret_file(path: str) -> bool:
    """Say whether a file is likely to hold nothing but secrets."""
    parts = PurePosixPath(path.lower()).parts
    if not parts or any(fnmatchcase(parts[-1], pattern) for pattern in _HARMLESS_FILES):
        return False
    if not _FOLDERS.isdisjoint(parts[:-1]):
        return True
    return any(fnmatchcase(parts[-1], pattern) for pattern in _FILES)


# Everything below is linear in the length of the text: a search begins only where a run of
# characters begins (the lookbehinds), and quantifiers give nothing back (`++`) or are small.

_PLACEHOLDER = re.compile(
    r"""(?: \{[^{}]*+\} | \$\{?\w++\}? | \$\(.* | %\(?\w*\)?[a-z] | %\w++% | <[^<>]*+> | \[\w*+\]
          | \*++ | [xX]{3,}+ | \.{3}+ )*+""",
    re.VERBOSE,
)
"""What stands where a secret is to be put in: `${TOKEN}`, `{token}`, `<your token>`, `***`."""

_TOKEN = re.compile(
    r"""(?<![A-Za-z0-9])
    (?: (?: AKIA | ASIA | AROA | AIDA ) [A-Z0-9]{16} (?![A-Za-z0-9])
      | (?: gh[opusr]_ | npm_ | hf_ | [sr]k_(?:live|test)_ ) [A-Za-z0-9]{16,255}+
      | (?: github_pat_ | gl(?:pat|dt|rt|ptt)- | pypi- | AIza ) [\w-]{16,255}+
      | xox[a-z]- [\w-]{10,255}+
      | (?<=hooks\.slack\.com/services/) [A-Za-z0-9/]{20,100}+
      | sk- (?= [A-Za-z_-]{0,60}+ [0-9] ) [\w-]{20,255}+
      | eyJ [\w-]{10,}+ \. [\w-]{10,}+ \. [\w-]*+ )""",
    re.VERBOSE | re.ASCII,
)
"""Tokens of known makers, and JWTs."""

_KNOWN_HEX = re.compile(
    r"((?:wandb|api[-_ ]?key)[^\n]{0,80}?(?<![/0-9A-Za-z]))[0-9a-f]{40}(?![0-9A-Za-z])",
    re.IGNORECASE,
)
"""Keys of 40 hexadecimal digits beside words that say so; most such numbers are commits."""

_SCHEME = re.compile(
    r"""((?: authorization ["']? [ \t]{0,4}+ [:=] [ \t]{0,4}+ ["']? (?:bearer|basic|token|digest)
           | (?<![a-z]) (?:bearer|basic) (?= [ \t]{1,4}+ [A-Za-z0-9._~+/=-]{12} )
             (?= [ \t]{1,4}+ [^\s0-9=]{0,100}+ [0-9=] ) )
         [ \t]{1,4}+)
        [^\s"'{}$<>*]{4,}+""",
    re.VERBOSE | re.IGNORECASE,
)
_AUTHORITY = re.compile(r"(?<=://)[^\s\"'<>/?#]{1,500}+")

_KEY = re.compile(
    r"""(-----BEGIN[ ][A-Z0-9 ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----)
        ([^\n]*+
         (?: \n [+\- ]?+ [ \t"']*+ (?: [A-Z][A-Za-z-]++: [^\n]*+ | [A-Za-z0-9/+=]*+ )
             [\\n"',; \t\r]*+ $ )*+)""",
    re.VERBOSE | re.MULTILINE,
)
_KEY_LINE = re.compile(r"^([+\- ]?+[ \t\"']*+)[^\n]+", re.MULTILINE)
_BASE64_LINE = re.compile(
    r"""^([+\- ]?+[ \t"']*+) (?=[^\n]*[a-z]) (?=[^\n]*[A-Z]) (?=[^\n]*[0-9])
        [A-Za-z0-9/+]{64,76}+ (?= [\\n"',; \t\r]*+ $ )""",
    re.VERBOSE | re.MULTILINE,
)
"""A line of a key that a diff shows only the middle of."""

_SHELL = re.compile(
    r"""^(?P<before> [+\- ]?[ \t]*+ (?:export[ ]|set[ ]|env[ ]|-[ ])?+ (?P<name> [A-Z0-9_]++ ) =)
        (?! [A-Za-z]{1,2}["'] ) [^\s$`"'*][^\s"']*+""",
    re.VERBOSE | re.MULTILINE,
)
_NAMED = re.compile(
    r"""
    (?<![\w.-])
    (?= [\w.-]*? (?i: passw | passphrase | secret | token | key | credential | authoriz ) )
    (?P<name> (?P<option> -- )?+ [\w.-]++ )
    (?: (?P<sign> \\?["']? \]? [ \t]{0,40}+ (?: =>? (?!=) | :=? (?!:) ) [ \t]{0,40}+ )
      | ["'] , [ \t]{0,4}+ (?=["'](?!-))  # an argument and the next one
      | (?(option) (?P<gap> [ \t]{1,4}+ ) | (?!) ) )
    """,
    re.VERBOSE,
)
"""A name and what stands between it and its value, in which another name may stand."""
_ANNOTATION = re.compile(r"[A-Za-z_][\w.\[\]|, ]{0,60}?=(?!=)[ \t]{0,4}+")
_VALUE = re.compile(
    r"""[A-Za-z]{0,2} (?P<quote> \\?(?: "{3} | '{3} | ["'] ) )
        (?P<quoted> (?: (?!(?P=quote)) (?: \\[^\n] | [^\\\n] ) )*+ )
      | (?P<bare> [^\s"'`,;()\[\]{}<>|\\]++ ) (?P<call> [(\[] )?""",
    re.VERBOSE,
)
_IN_CODE = re.compile(
    r"""[$#] | lambda | none | null | nil | true | false | yes | no | on | off | str | bytes | int
      | float | bool | object | any | string | pass | return | break | continue | self
      | (?:u?int|b?float|complex)\d++ | [a-z_]\w*+(?:\.[a-z_]\w*+)++
      | [+-]?(?:\d{1,3} | \d*\.\d*)(?:e[+-]?\d++)?""",
    re.VERBOSE | re.IGNORECASE,
)
"""What follows a name in code and is not a secret: words, types, attributes, small numbers."""
_LINE_START = re.compile(r"[+\- ]?\s*+(?:export |set |env |- )?", re.IGNORECASE)
_LINE_END = re.compile(r"[ \t]{0,20}+(?:#|\r?\n|\r?\Z)")
_MAX_START = 60


def mask_text(text: str) -> str:
    """Return the text with likely secrets replaced by `***`; its lines stay lines."""
    text = _KEY.sub(lambda found: found[1] + _KEY_LINE.sub(rf"\1{MASK}", found[2]), text)
    text = _BASE64_LINE.sub(rf"\1{MASK}", text)
    text = _AUTHORITY.sub(_mask_user, text)
    text = _SCHEME.sub(rf"\1{MASK}", text)
    text = _TOKEN.sub(MASK, text)
    text = _KNOWN_HEX.sub(rf"\1{MASK}", text)
    text = _SHELL.sub(lambda m: m["before"] + MASK if is_secret_name(m["name"]) else m[0], text)
    return _mask_named(text)


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a command line with likely secrets replaced.

    Whatever is given to an option or a key with the name of a secret is one:
    `--token X`, `--password=X`, `--set env.api_key=X`.
    """
    masked: list[str] = []
    is_value = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if is_value and not argument.startswith("-"):
            masked.append(MASK)
        elif equals and is_secret_name(name) and not re.search(r"[\s:/?]", name):
            masked.append(f"{name}={MASK}")
        else:
            masked.append(mask_text(argument))
        is_value = argument.startswith("-") and not equals and is_secret_name(argument)
    return masked


def _mask_user(found: re.Match[str]) -> str:
    user_info, at, host = found[0].rpartition("@")
    user, colon, password = user_info.partition(":")
    if not at or _PLACEHOLDER.fullmatch(password or user):
        return found[0]
    if colon and password not in ("", "x-oauth-basic"):
        return f"{user}:{MASK}@{host}"
    scheme = found.string[max(0, found.start() - 8) : found.start()]
    is_token = scheme.endswith(("http://", "https://")) and user != "git"
    return f"{MASK}@{host}" if is_token else found[0]


def _mask_named(text: str) -> str:
    pieces: list[str] = []
    done = 0
    for found in _NAMED.finditer(text):
        if found.start() < done or not is_secret_name(found["name"]):
            continue
        start, end = _secret_of(found)
        if start < end:
            pieces += [text[done:start], MASK]
            done = end
    return "".join([*pieces, text[done:]])


def _secret_of(found: re.Match[str]) -> tuple[int, int]:
    text, start = found.string, found.end()
    if ":" in (found["sign"] or "") and (annotation := _ANNOTATION.match(text, start)):
        start = annotation.end()
    value = _VALUE.match(text, start)
    if value is None:
        return start, start
    is_secret = _is_bare_secret if value["bare"] else _is_quoted_secret
    kind = "bare" if value["bare"] else "quoted"
    return value.span(kind) if is_secret(found, value) else (start, start)


def _is_quoted_secret(found: re.Match[str], value: re.Match[str]) -> bool:
    content = value["quoted"].strip()
    is_variable = content.isupper() and "_" in content and is_secret_name(content)
    # In `getpass("Password: ")` the quote behind the name is a closing one.
    is_open = _line_before(found).count(value["quote"]) % 2 == 1
    if is_open and content.startswith((")", "]", "}", ",", ";", "+", "%")):
        return False
    return not is_variable and not _PLACEHOLDER.fullmatch(content.removeprefix("Bearer "))


def _is_bare_secret(found: re.Match[str], value: re.Match[str]) -> bool:
    """Say whether a value without quotes is meant literally, as in a shell, INI or YAML."""
    word = value["bare"].removesuffix(":")
    if _IN_CODE.fullmatch(word) or _PLACEHOLDER.fullmatch(word):
        return False
    digits = len([char for char in word if char.isdigit()])
    if found["gap"]:
        return digits > 0
    if not word.isidentifier():
        return True
    looks_drawn = len(word) >= 8 and (digits >= 4 or (digits > 0 and "_" not in word))
    return not value["call"] and (looks_drawn or _stands_alone(found, value))


def _stands_alone(found: re.Match[str], value: re.Match[str]) -> bool:
    before = _line_before(found)
    is_line = _LINE_START.fullmatch(before) and _LINE_END.match(value.string, value.end())
    is_setting = found["sign"] == "=" or found["sign"].startswith(":")
    is_other = value["bare"].lower() not in found["name"].lower()
    return before.endswith(("?", "&")) or bool(is_line and is_setting and is_other)


def _line_before(found: re.Match[str]) -> str:
    return found.string[max(0, found.start() - _MAX_START) : found.start()].rpartition("\n")[2]
