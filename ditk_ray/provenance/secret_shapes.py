"""Secrets that are known by their shape: tokens of known makers, keys, URLs with passwords."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MASK = "***"
PLACEHOLDER = re.compile(
    r"""(?: \{[^{}]*+\} | \$\{?\w++\}? | \$\(.* | %\(?\w*\)?[a-z] | %\w++% | <[^<>]*+> | \[\w*+\]
          | \*++ | [xX]{3,}+ | \.{3}+ )*+""",
    re.VERBOSE,
)
"""What stands where a secret is to be put in: `${TOKEN}`, `{token}`, `<your token>`, `***`."""

# Everything here is linear in the length of the text: a search begins only where a run of
# characters begins (the lookbehinds), and quantifiers give nothing back (`++`) or are small.
_TOKENS = re.compile(
    r"""
    (?<![A-Za-z0-9])
    (?: (?: AKIA | ASIA | AROA | AIDA ) [A-Z0-9]{16} (?![A-Za-z0-9])
      | (?: gh[opusr]_ | npm_ ) [A-Za-z0-9]{30,255}+
      | github_pat_ \w{22,255}+
      | gl(?:pat|dt|rt|ptt)- [\w-]{20,255}+
      | xox[a-z]- [A-Za-z0-9-]{10,255}+
      | (?<=hooks\.slack\.com/services/) [A-Za-z0-9/]{20,100}+
      | (?<![_-]) AIza [\w-]{35} (?![\w-])
      | (?<![_-]) sk- (?= [A-Za-z_-]{0,60}+ [0-9] ) [\w-]{20,255}+
      | (?<![_-]) [sr]k_(?:live|test)_ [A-Za-z0-9]{16,255}+
      | (?<![_-]) hf_ [A-Za-z0-9]{30,255}+
      | (?<![_-]) pypi- [\w-]{50,255}+
      | (?<![_-]) eyJ [\w-]{10,}+ \. [\w-]{10,}+ \. [\w-]*+
    )
    """,
    re.VERBOSE | re.ASCII,
)
_AUTHORITY = re.compile(r"(?<=://)[^\s\"'<>/?#]{1,500}+")
_PUBLIC_USER = "git"
_NO_PASSWORDS = {"", "x-oauth-basic"}
_SCHEME = re.compile(
    r"""(?i) (?P<start> authorization ["']? [ \t]{0,4}+ [:=] [ \t]{0,4}+ ["']?
                        (?:bearer|basic|token|digest) [ \t]{1,4}+ )
             [^\s"'{}$<>*]{4,}+
          |  (?P<scheme> (?<![a-z]) (?:bearer|basic) [ \t]{1,4}+ )
             (?= [A-Za-z._~+/-]{0,100}+ [0-9=] ) [A-Za-z0-9._~+/=-]{12,}+""",
    re.VERBOSE,
)
_HEX_40 = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{40}(?![0-9A-Za-z])")
_BESIDE_HEX = re.compile(r"wandb|api[-_ ]?key", re.IGNORECASE)
_BESIDE = 80

_KEY_BEGIN = re.compile(
    r"(?P<begin>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)(?P<rest>.*)"
)
_KEY_END = "-----END "
_KEY_HEADER = re.compile(r"[+\- ]?+\s*+(?:[A-Z][A-Za-z-]++:.*)?")
_KEY_LINE = re.compile(
    r"(?P<prefix>[+\- ]?+\s*+[\"']?)(?P<body>[A-Za-z0-9/+]++={0,2}+)(?P<rest>\\n|[\"',;\s])*+"
)
_FULL_LINES = {64, 70, 76}


def mask_shapes(text: str) -> str:
    """Return the text without the secrets that their shape gives away.

    Lines stay lines, so that a diff stays one.
    """
    text = "\n".join(_without_keys(text.split("\n")))
    text = _AUTHORITY.sub(_mask_user, text)
    text = _SCHEME.sub(lambda found: (found["start"] or found["scheme"]) + MASK, text)
    text = _TOKENS.sub(MASK, text)
    return _HEX_40.sub(_mask_known_hex, text)


def _mask_user(found: re.Match[str]) -> str:
    user_info, at, host = found[0].rpartition("@")
    user, colon, password = user_info.partition(":")
    if not at or PLACEHOLDER.fullmatch(password or user):
        return found[0]
    if colon and password not in _NO_PASSWORDS:
        return f"{user}:{MASK}@{host}"
    scheme = found.string[max(0, found.start() - 8) : found.start()]
    is_token = scheme.endswith(("http://", "https://")) and user != _PUBLIC_USER
    return f"{MASK}@{host}" if is_token else found[0]


def _mask_known_hex(found: re.Match[str]) -> str:
    """Mask 40 hexadecimal digits beside words that say what they are; most are commits."""
    before = found.string[max(0, found.start() - _BESIDE) : found.start()].rpartition("\n")[2]
    is_known = _BESIDE_HEX.search(before) and not before.endswith("/")
    return MASK if is_known else found[0]


def _without_keys(lines: Iterable[str]) -> Iterator[str]:
    """Mask private keys, also those that a diff shows only a part of."""
    has_begun = in_head = in_body = False
    for line in lines:
        begin = _KEY_BEGIN.search(line)
        body = _KEY_LINE.fullmatch(line)
        if begin:
            has_begun = in_head = _KEY_END not in begin["rest"]
            yield line[: begin.end("begin")] + (MASK if begin["rest"].strip() else "")
        elif body and (has_begun or in_body or _is_full_line(body["body"])):
            # Of a key whose beginning is not shown, a line that is shorter is the last one.
            in_head, in_body = False, len(body["body"]) in _FULL_LINES
            yield body["prefix"] + MASK
        else:
            has_begun = in_head = in_head and bool(_KEY_HEADER.fullmatch(line))
            in_body = False
            yield line


def _is_full_line(body: str) -> bool:
    mixed = body.lower() != body != body.upper() and any(char.isdigit() for char in body)
    return len(body) in _FULL_LINES and mixed
