"""Which names are those of secrets: variables, options, files."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import PurePosixPath

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRETS = {
    *("password", "passwords", "passwd", "passphrase", "secret", "secrets", "token"),
    *("credential", "credentials", "apikey", "accesskey", "privatekey", "authorization"),
}
_KINDS_OF_KEY = {"api", "access", "private", "account", "auth", "encryption", "signing", "wandb"}

# What is said about a secret, or about the tokens of a text, is no secret.
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
