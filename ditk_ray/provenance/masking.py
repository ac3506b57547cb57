"""Likely secrets in texts and command lines, replaced by `***`.

Meant for the diffs and commands that are kept beside a sweep. What a literal is
given to has to have the name of a secret, or the literal its shape; names and calls
are no secrets. A guess, in both directions: better to mask a word too many.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ditk_ray.provenance.secret_names import is_secret_name
from ditk_ray.provenance.secret_shapes import MASK, PLACEHOLDER, mask_shapes

_NAMED = re.compile(
    r"""
    (?<![\w.-])
    (?= [\w.-]*? (?i: passw | passphrase | secret | token | key | credential | authoriz ) )
    (?P<name> [\w.-]++ )
    (?: (?P<sign> \\?["']? \]? [ \t]{0,40}+ (?: =>? (?!=) | :=? (?!:) ) [ \t]{0,40}+ )
      | (?P<comma> ["'] , [ \t]{0,4}+ (?=["']) )
      | (?P<gap> [ \t]{1,4}+ ) )
    """,
    re.VERBOSE,
)
_ANNOTATION = re.compile(r"[A-Za-z_][\w.\[\]|, ]{0,60}?=(?!=)[ \t]{0,4}+")
_OPENING = re.compile(r"(?P<kind>[A-Za-z]{0,2})(?P<quote>\\?(?:\"{3}|'{3}|[\"']))")
_CONTENTS = {
    '"': re.compile(r'(?:[^"\\\n]|\\.)*+'),
    "'": re.compile(r"(?:[^'\\\n]|\\.)*+"),
    '"""': re.compile(r'(?:[^"\n]|"(?!""))*+'),
    "'''": re.compile(r"(?:[^'\n]|'(?!''))*+"),
}
_ESCAPED_CONTENT = re.compile(r"[^\"'\\\n]*+")
_BARE = re.compile(r"[^\s\"'`,;()\[\]{}<>|\\]++")
_SHELL_WORD = re.compile(r"[^\s$`\"'][^\s\"']*+")
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*+(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?")
_NAMES = re.compile(r"[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)*+")
_TYPES = re.compile(r"(?:u?int|b?float|complex)\d++")
_WORDS = {
    *("$", "#", "lambda"),
    *("none", "null", "nil", "true", "false", "yes", "no", "on", "off", "str", "bytes", "int"),
    *("float", "bool", "object", "any", "string", "pass", "return", "break", "continue", "self"),
}
_LINE_START = re.compile(r"[+\- ]?(?P<indent>\s*+)(?:export |set |env |- )?", re.IGNORECASE)
_LINE_END = re.compile(r"[ \t]{0,20}+(?:#|\r?\n|\r?\Z)")
_MAX_START = 60


def mask_text(text: str) -> str:
    """Return the text with likely secrets replaced; its lines stay lines."""
    return _mask_named(mask_shapes(text))


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


def _mask_named(text: str) -> str:
    pieces: list[str] = []
    done = 0
    for found in _NAMED.finditer(text):
        if found.start() < done or not is_secret_name(found["name"]):
            continue
        start, end = _literal_of(text, found)
        if start < end:
            pieces += [text[done:start], MASK]
            done = end
    return "".join([*pieces, text[done:]])


def _literal_of(text: str, found: re.Match[str]) -> tuple[int, int]:
    """Return where the literal is that a name is given, or an empty place."""
    start = found.end()
    if annotation := _ANNOTATION.match(text, start) if ":" in (found["sign"] or "") else None:
        start = annotation.end()
    opening = _OPENING.match(text, start)
    if opening:
        end = _end_of_content(text, opening)
        is_literal = _is_quoted_literal(text, found, opening, text[opening.end() : end])
        return (opening.end(), end) if is_literal else (start, start)
    shell_word = _SHELL_WORD.match(text, start)
    if shell_word and _is_shell_assignment(text, found):
        return shell_word.span()
    bare = _BARE.match(text, start)
    if bare is None or found["comma"] or not _is_literal(text, found, bare):
        return start, start
    return bare.span()


def _is_quoted_literal(
    text: str, found: re.Match[str], opening: re.Match[str], content: str
) -> bool:
    is_option = found["name"].startswith("--")
    if PLACEHOLDER.fullmatch(content.strip()) or (found["gap"] and not is_option):
        return False
    if found["comma"]:
        return _is_given(text, found) and not content.startswith("-")
    # In `getpass("Password: ")` the quote behind the name is a closing one.
    is_open = _line_before(text, found.start()).count(opening["quote"]) % 2 == 1
    return not (is_open and content.lstrip().startswith((")", "]", "}", ",", ";", "+", "%")))


def _is_shell_assignment(text: str, found: re.Match[str]) -> bool:
    begin = _LINE_START.fullmatch(_line_before(text, found.start()))
    return begin is not None and found["sign"] == "=" and found["name"].isupper()


def _line_before(text: str, place: int) -> str:
    """Return the line up to a place, or the end of it if it is long."""
    return text[max(0, place - _MAX_START) : place].rpartition("\n")[2]


def _is_given(text: str, found: re.Match[str]) -> bool:
    """Say whether `"name", "value"` are arguments of a call or a command, not just a list."""
    is_argument = text[max(0, found.start() - 2) : found.start()].rstrip("\"'").endswith("(")
    return is_argument or found["name"].startswith("--")


def _end_of_content(text: str, opening: re.Match[str]) -> int:
    quote = opening["quote"]
    content = _ESCAPED_CONTENT if quote.startswith("\\") else _CONTENTS[quote]
    end = content.match(text, opening.end())
    return end.end() if end else opening.end()


def _is_literal(text: str, found: re.Match[str], bare: re.Match[str]) -> bool:
    """Say whether a value without quotes is meant literally, as in a shell, INI or YAML."""
    value = bare[0].removesuffix(":")
    if value.lower() in _WORDS or _TYPES.fullmatch(value) or PLACEHOLDER.fullmatch(value):
        return False
    if _NUMBER.fullmatch(value):
        return value.isdigit() and len(value) >= 4
    digits = sum(char.isdigit() for char in value)
    if not _NAMES.fullmatch(value):
        return not found["gap"] or (found["name"].startswith("--") and digits > 0)
    if text[bare.end() : bare.end() + 1] in ("(", "[") or "." in value:
        return False
    if found["gap"]:
        return found["name"].startswith("--") and digits > 0
    in_url = text[max(0, found.start() - 1) : found.start()] in ("?", "&")
    looks_drawn = len(value) >= 8 and (digits >= 4 or (digits > 0 and "_" not in value))
    return in_url or looks_drawn or _stands_alone(text, found, bare)


def _stands_alone(text: str, found: re.Match[str], bare: re.Match[str]) -> bool:
    """Say whether a line is `NAME=value` or `name: value` and nothing else."""
    name, sign = found["name"], found["sign"]
    if not _LINE_END.match(text, bare.end()) or bare[0].lower() in name.lower():
        return False
    begin = _LINE_START.fullmatch(_line_before(text, found.start()))
    if begin is None:
        return False
    if sign == "=":
        return not begin["indent"]
    return sign.startswith(":") and bare[0][0].islower()
