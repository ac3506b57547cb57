"""Requests to the API server: time limits, retries, and what its refusals mean, in one place."""

from __future__ import annotations

import contextlib
import json
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError
from urllib3.response import BaseHTTPResponse

from ditk_ray import errors

if TYPE_CHECKING:
    from kubernetes.client.api_client import ApiClient

Answer = TypeVar("Answer")

JSON = "application/json"
_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
_KINDS = {410: errors.KubeExpiredError, 429: errors.KubeUnreachableError} | dict.fromkeys(
    (400, 403, 413, 422), errors.KubeRefusedError
)
# Which operator a cluster needs to know a kind of objects.
_OPERATORS = {"dijobs": "DI-orchestrator", "rayclusters": "KubeRay", "rayjobs": "KubeRay"}
_DIJOB_ROLE = "cluster_configs/rbac.yaml"
_CLUSTER_ROLE = "cluster_configs/cluster_rbac.yaml"
_BOTH_ROLES = f"{_DIJOB_ROLE} (for Ray clusters {_CLUSTER_ROLE})"
_ROLE_FILES = {"dijobs": _DIJOB_ROLE} | dict.fromkeys(
    ("pods", "pods/log", "events", "configmaps"), _BOTH_ROLES
)
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
MAX_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is not one of a log or a watch; its beginning is given as a line."""


@dataclass(frozen=True)
class Call:
    """A request. `name` is None for a whole collection, `namespace` empty for what lives in none.

    `is_repeatable` says whether it may be sent again when it is not known whether it had
    its effect: reading, deleting and merging may, creating only for who can tell its own
    object from another's.
    """

    method: str
    path: str
    plural: str
    namespace: str = ""
    name: str | None = None
    part: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    content_type: str = JSON
    is_repeatable: bool = True

    @property
    def verb(self) -> str:
        if self.method == "GET" and self.name is None:
            return "watch" if "watch" in self.query else "list"
        return _VERBS[self.method]

    @property
    def resource(self) -> str:
        return f"{self.plural}/{self.part}" if self.part else self.plural

    @property
    def place(self) -> str:
        return f"in namespace {self.namespace!r}" if self.namespace else "of the whole cluster"

    def __str__(self) -> str:
        named = f" {self.name!r}" if self.name else ""
        return f"{self.verb} {self.resource}{named} {self.place}"


def refusal(call: Call, status: int, body: bytes) -> errors.KubeError:
    said: Mapping[str, Any] = {}
    with contextlib.suppress(ValueError, TypeError):
        said = dict(json.loads(body))
    message = str(said.get("message") or body[:300].decode(errors="replace")).strip()
    if status == 401:
        return errors.KubeForbiddenError(
            f"cannot {call}: authentication failed (401)\n"
            "    the token or certificate is wrong or has expired; log in to the cluster again",
            status,
        )
    if status == 403 and said.get("reason") == "Forbidden" and "is forbidden: User" in message:
        return _missing_right(call, message)
    if status == 403 and message.endswith("is forbidden:"):
        # Applying what is not there yet takes `create`, too, which the server does not name.
        return _missing_right(replace(call, method="POST"), message)
    if status == 404:
        return _not_found(call, said, message)
    if status == 409:
        is_there = said.get("reason") == "AlreadyExists"
        return errors.KubeConflictError(f"cannot {call}: {message}", status, is_there)
    kind = _KINDS.get(status, errors.KubeUnreachableError if status >= 500 else errors.KubeError)
    return kind(f"cannot {call}: {message} ({status})", status)


def unreachable(call: Call, host: str, error: BaseException) -> errors.KubeUnreachableError:
    return errors.KubeUnreachableError(f"cannot {call}: {host} {_why_unreachable(error)}")


def _never_arrived(error: BaseException) -> bool:
    """Tell whether the request cannot have had an effect, so that it may be sent again."""
    return isinstance(error, (NewConnectionError, ConnectTimeoutError))


def _why_unreachable(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if "certificate_verify_failed" in text.lower():
        return f"has a certificate that is not trusted ({text[-120:]})"
    if isinstance(error, NewConnectionError):
        return f"cannot be reached ({text.rpartition(': ')[2]})"
    if isinstance(error, (ConnectTimeoutError, ReadTimeoutError, TimeoutError)):
        return "does not answer in time"
    return f"cannot be reached ({type(error).__name__}: {text[:200]})"


def _missing_right(call: Call, message: str) -> errors.KubeForbiddenError:
    who = message.partition('User "')[2].partition('"')[0]
    return errors.KubeForbiddenError(
        f"{who or 'this account'} may not {call.verb} {call.resource} {call.place}\n"
        f"    see {_ROLE_FILES.get(call.resource, _CLUSTER_ROLE)} for the permissions needed",
        403,
    )


def _not_found(call: Call, said: Mapping[str, Any], message: str) -> errors.KubeError:
    details = said.get("details") or {}
    if details.get("kind") == "namespaces":
        return errors.KubeNotFoundError(f"cannot {call}: the namespace does not exist", 404)
    # An object that is missing is named in the answer; a resource that is missing is not.
    if not details.get("name") and call.plural in _OPERATORS:
        return errors.KubeUnknownKindError(
            f"cannot {call}: this cluster does not know {call.plural}\n"
            f"    is {_OPERATORS[call.plural]} installed? `kubectl get crd` should list them",
            404,
        )
    return errors.KubeNotFoundError(f"cannot {call}: {message}", 404)


class HttpClient:
    """The way to one API server, for any number of threads.

    A request that fails for a reason that may pass (no connection, 429, 5xx) is sent again
    for up to `patience` seconds; then KubeUnreachableError is raised. Every other refusal
    is raised at once, except those of a server that has only just started: for a moment it
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
        answer = self._send(call, ANSWER_SECONDS, patience, lambda got: json.loads(got.read()))
        return answer if isinstance(answer, dict) else {}

    def open(self, call: Call, silence: float, patience: float | None = None) -> LineStream:
        """Send a request with a streamed answer, which ends after `silence` seconds of nothing."""
        return self._send(call, silence, patience, lambda got: LineStream(got, call, self.host))

    def websocket_options(self, call: Call) -> tuple[str, dict[str, Any]]:
        """Return the address of a request, and how aiohttp reaches it with our credentials."""
        from kubernetes.client.rest import should_bypass_proxies  # slow to import

        configuration = self._client.configuration
        _, url, headers, *_ = self._serialized(call)
        is_direct = should_bypass_proxies(self.host, configuration.no_proxy or "")
        return url, {
            "headers": headers,
            "ssl": _tls_context(configuration),
            "server_hostname": configuration.tls_server_name,
            "proxy": None if is_direct else configuration.proxy,
        }

    def close(self) -> None:
        self._closed.set()
        self._client.close()

    def _send(
        self,
        call: Call,
        read_seconds: float,
        patience: float | None,
        take: Callable[[BaseHTTPResponse], Answer],
    ) -> Answer:
        end = time.monotonic() + (self.patience if patience is None else patience)
        backoff = Backoff()
        while True:
            attempt = self._attempt(call, read_seconds, take)
            if not isinstance(attempt, _Failure):
                return attempt
            pause = max(backoff.pause(), attempt.retry_after)
            is_late = time.monotonic() + pause > end
            if not attempt.may_retry or is_late or self._closed.wait(pause):
                raise attempt.error from None

    def _attempt(
        self, call: Call, read_seconds: float, take: Callable[[BaseHTTPResponse], Answer]
    ) -> Answer | _Failure:
        from kubernetes.client.exceptions import ApiException  # slow to import

        try:
            request, limits = self._serialized(call), (CONNECT_SECONDS, read_seconds)
            response = self._client.call_api(*request, _request_timeout=limits).response
            if 200 <= response.status < 300:
                self._served.add(call.plural)
                self._allowed.add((call.verb, call.resource))
                return take(response)
            return self._refused(call, response)
        except (HTTPError, ValueError) as error:
            may_retry = call.is_repeatable or _never_arrived(error)
            return _Failure(unreachable(call, self.host, error), may_retry)
        except ApiException as error:  # TLS: the client wraps only this, without a status
            is_trusted = "CERTIFICATE_VERIFY_FAILED" not in str(error.reason)
            wrapped = unreachable(call, self.host, OSError(str(error.reason)))
            return _Failure(wrapped, call.is_repeatable and is_trusted)

    def _refused(self, call: Call, response: BaseHTTPResponse) -> _Failure:
        error = refusal(call, response.status, response.read())
        if isinstance(error, errors.KubeUnknownKindError) and call.plural in self._served:
            error = errors.KubeUnreachableError(f"just now, {error}", response.status)
        # With 429 and 503 the server has not begun; other 5xx may have had their effect.
        is_passing = isinstance(error, errors.KubeUnreachableError)
        may_retry = is_passing and (call.is_repeatable or response.status in (429, 503))
        was_allowed = (call.verb, call.resource) in self._allowed
        may_retry = may_retry or (isinstance(error, errors.KubeForbiddenError) and was_allowed)
        retry_after = response.headers.get("Retry-After", "")
        return _Failure(error, may_retry, float(retry_after) if retry_after.isdigit() else 0.0)

    def _serialized(self, call: Call) -> tuple[Any, ...]:
        headers = {"Accept": JSON}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        serialized: tuple[Any, ...] = self._client.param_serialize(
            call.method,
            call.path,
            query_params=list(call.query.items()),
            header_params=headers,
            body=call.body,
            auth_settings=["BearerToken"],
        )
        return serialized


def _tls_context(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data
    )
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl or configuration.assert_hostname is False:
        context.check_hostname = False
    if not configuration.verify_ssl:
        context.verify_mode = ssl.CERT_NONE
    return context


@dataclass(frozen=True)
class _Failure:
    error: errors.KubeError
    may_retry: bool
    retry_after: float = 0.0


class LineStream(contextlib.AbstractContextManager["LineStream"]):
    """The lines of an answer as they come; read by one thread, `shut` by any.

    Reading raises KubeUnreachableError when the connection breaks or is silent for too
    long. A regular end just ends the iteration.
    """

    def __init__(self, response: BaseHTTPResponse, call: Call, host: str) -> None:
        self._response = response
        self._call = call
        self._host = host
        self._lock = threading.Lock()
        self._is_closed = False
        self.is_shut = False

    def __iter__(self) -> Iterator[bytes]:
        """Yield each line without its end; also a last one that has none."""
        rest = b""
        try:
            for chunk in self._response.stream(None):
                if self.is_shut:
                    break
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
                if len(rest) > MAX_LINE_BYTES:
                    yield rest
                    rest = b""
        # A socket that is shut under TLS can raise nearly anything from its depths.
        except Exception as error:
            if not self.is_shut:
                raise unreachable(self._call, self._host, error) from None
        if rest:
            yield rest

    def shut(self) -> None:
        """Make the reader stop, also one that is waiting just now."""
        with self._lock:
            self.is_shut = True
            if not self._is_closed:
                # It raises when the answer has come to its end on its own.
                with contextlib.suppress(OSError, ValueError, RuntimeError):
                    self._response.shutdown()

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._is_closed = True
            self._response.close()
            self._response.release_conn()


class Backoff:
    """Pauses that grow, with a random part so that many do not come back at once.

    Not for use by several threads.
    """

    def __init__(self, longest: float = 10.0) -> None:
        self._longest = longest
        self.reset()

    def reset(self) -> None:
        self._next = 0.1

    def pause(self) -> float:
        """Return the seconds to wait now; those after it will be longer."""
        longest, self._next = self._next, min(self._next * 2, self._longest)
        return longest * random.uniform(0.5, 1.0)
