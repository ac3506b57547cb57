"""Plain requests to a Kubernetes API server: JSON in, JSON out.

The tests look at the cluster, and the stand-in plays its part in it, through this and not
through the code that is tested.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

from tests.kube.certificates import Certificate

DIJOBS = "apis/diengine.opendilab.org/v2alpha1"
MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """The API server refused a request."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason


class ApiClient:
    """One user of an API server. May be used by many threads."""

    def __init__(self, url: str, authority: Path, user: Certificate) -> None:
        self._url = url
        self._pool = urllib3.PoolManager(
            maxsize=64,
            ca_certs=str(authority),
            cert_file=str(user.certificate),
            key_file=str(user.key),
            retries=False,
        )

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Return an object, or a list of them."""
        return self._json("GET", path, query)

    def create(self, path: str, body: Mapping[str, Any], **query: str) -> dict[str, Any]:
        """Create an object in a collection."""
        return self._json("POST", path, query, body)

    def replace(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object, unless it changed since it was read."""
        return self._json("PUT", path, {}, body)

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Merge values into an object."""
        return self._json("PATCH", path, {}, body, MERGE)

    def delete(self, path: str, **options: Any) -> dict[str, Any]:
        """Delete an object or a collection; `options` are those of DeleteOptions."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        return self._json("DELETE", path, {}, body)

    def text(self, path: str, **query: str) -> str:
        """Return what is not JSON, such as a log."""
        with self.stream(path, **query) as answer:
            return answer.read().decode()

    def watch(
        self, path: str, version: str, seconds: int = 300, **query: str
    ) -> Iterator[dict[str, Any]]:
        """Yield the changes of a collection since a resource version, until the server ends it."""
        asked = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(seconds), **query}
        with self.stream(path, **asked) as answer:
            rest = b""
            for chunk in answer.stream(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    yield json.loads(line)

    def stream(self, path: str, **query: str) -> urllib3.BaseHTTPResponse:
        """Begin a request whose answer is read while it comes."""
        url = f"{self._url}/{path}?{urlencode(query)}"
        answer = self._pool.request("GET", url, preload_content=False, timeout=600)
        if answer.status >= 400:
            raise _error(answer.status, answer.read())
        return answer

    def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        kind: str = "application/json",
    ) -> dict[str, Any]:
        url = f"{self._url}/{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        answer = self._pool.request(
            method, url, body=data, headers={"Content-Type": kind}, timeout=30
        )
        if answer.status >= 400:
            raise _error(answer.status, answer.data)
        return dict(json.loads(answer.data))


def _error(code: int, data: bytes) -> ApiError:
    try:
        said = json.loads(data)
        return ApiError(code, said.get("reason", ""), said.get("message", ""))
    except (ValueError, AttributeError):
        return ApiError(code, "", data.decode(errors="replace")[:500])
