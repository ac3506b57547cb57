"""Requests to the API server: time limits, retries and the translation of errors, in one place."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from ditk_ray.errors import (
    KubeError,
    KubeForbiddenError,
    KubeUnknownKindError,
    KubeUnreachableError,
)
from ditk_ray.kube.backoff import Backoff
from ditk_ray.kube.refusals import Asked, never_arrived, refusal, unreachable
from ditk_ray.kube.streams import LineStream
from ditk_ray.kube.websocket import open_websocket

if TYPE_CHECKING:
    from kubernetes.client.api_client import ApiClient

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0

Answer = TypeVar("Answer")

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # of which JSON is a part


@dataclass(frozen=True)
class Call:
    """A request as it goes over the wire.

    `is_repeatable` says whether it may be sent again when it is not known whether it had
    its effect: reading, deleting and merging may, creating only for who can tell its own
    object from another's.
    """

    asked: Asked
    path: str
    query: Mapping[str, str]
    body: Mapping[str, Any] | None = None
    content_type: str = JSON
    is_repeatable: bool = True


class Wire:
    """The way to one API server, for any number of threads.

    A request that fails for a reason that may pass (no connection, 429, 5xx) is sent again
    for up to `patience` seconds; then KubeUnreachableError is raised. Every other refusal
    is raised at once, but for those of a server that has only just started: for a moment it
    does not know kinds of objects for which it has answered before, and forbids what it
    has allowed.
    """

    def __init__(self, client: ApiClient, patience: float) -> None:
        self.host = str(client.configuration.host)
        self.patience = patience
        self._client = client
        self._closed = threading.Event()
        self._served: set[str] = set()
        self._allowed: set[tuple[str, str]] = set()

    def ask(self, call: Call, patience: float | None = None) -> dict[str, Any]:
        """Send a request and return the object that is the answer."""
        answer = self._send(call, ANSWER_SECONDS, patience, _read_json)
        return answer if isinstance(answer, dict) else {}

    def open(self, call: Call, silence: float, patience: float | None = None) -> LineStream:
        """Send a request whose answer goes on; it breaks off after `silence` seconds of none."""
        return LineStream(self._send(call, silence, patience, _as_it_is), call.asked, self.host)

    def upgrade(self, call: Call, protocol: str) -> socket.socket:
        """Have a request become a websocket, and return its socket; it is sent once only."""
        return open_websocket(self._client, call, protocol)

    def close(self) -> None:
        """Let go of the connections; whoever waits to try again gives up."""
        self._closed.set()
        self._client.close()

    def _send(
        self,
        call: Call,
        read_seconds: float,
        patience: float | None,
        take: Callable[[BaseHTTPResponse], Answer],
    ) -> Answer:
        """Send a request until it is answered, and return what `take` makes of the answer."""
        end = time.monotonic() + (self.patience if patience is None else patience)
        backoff = Backoff()
        while True:
            attempt = self._attempt(call, read_seconds, take)
            if not isinstance(attempt, _Failure):
                return attempt
            pause = max(backoff.pause(), attempt.retry_after)
            if not attempt.may_retry or time.monotonic() + pause > end:
                raise attempt.error from None
            if self._closed.wait(pause):
                raise attempt.error from None

    def _attempt(
        self, call: Call, read_seconds: float, take: Callable[[BaseHTTPResponse], Answer]
    ) -> Answer | _Failure:
        """Send a request once; return what is taken of its answer, or what went wrong."""
        from kubernetes.client.exceptions import ApiException

        try:
            response = self._request(call, read_seconds)
            if 200 <= response.status < 300:
                self._served.add(call.asked.plural)
                self._allowed.add((call.asked.verb, call.asked.resource))
                return take(response)
        except (HTTPError, ValueError) as error:
            may_retry = call.is_repeatable or never_arrived(error)
            return _Failure(unreachable(call.asked, self.host, error), may_retry)
        except ApiException as error:  # TLS: the client wraps only this, without a status
            is_trusted = "CERTIFICATE_VERIFY_FAILED" not in str(error.reason)
            wrapped = unreachable(call.asked, self.host, OSError(str(error.reason)))
            return _Failure(wrapped, call.is_repeatable and is_trusted)
        return self._refused(call, response)

    def _refused(self, call: Call, response: BaseHTTPResponse) -> _Failure:
        try:
            body = response.read()
        except HTTPError:
            body = b""
        error = refusal(call.asked, response.status, body)
        if isinstance(error, KubeUnknownKindError) and call.asked.plural in self._served:
            error = KubeUnreachableError(f"just now, {error}", response.status)
        # With 429 and 503 the server has not begun; other 5xx may have had their effect.
        is_passing = isinstance(error, KubeUnreachableError)
        may_retry = is_passing and (call.is_repeatable or response.status in (429, 503))
        was_allowed = (call.asked.verb, call.asked.resource) in self._allowed
        may_retry = may_retry or (isinstance(error, KubeForbiddenError) and was_allowed)
        return _Failure(error, may_retry, _seconds(response.headers.get("Retry-After")))

    def _request(self, call: Call, read_seconds: float) -> BaseHTTPResponse:
        headers = {"Accept": JSON}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        request = self._client.param_serialize(
            call.asked.method,
            call.path,
            query_params=list(call.query.items()),
            header_params=headers,
            body=call.body,
            auth_settings=["BearerToken"],
        )
        timeout = (CONNECT_SECONDS, read_seconds)
        response = self._client.call_api(*request, _request_timeout=timeout).response
        assert isinstance(response, BaseHTTPResponse)
        return response


@dataclass(frozen=True)
class _Failure:
    error: KubeError
    may_retry: bool
    retry_after: float = 0.0


def _read_json(response: BaseHTTPResponse) -> Any:
    return json.loads(response.read())


def _as_it_is(response: BaseHTTPResponse) -> BaseHTTPResponse:
    return response


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdigit() else 0.0
