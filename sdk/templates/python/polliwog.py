"""Polliwog's helpers for plugins in Python: requests, failures, dependencies. The contract is in wit/."""

import importlib
import json as _json
import math
import sys
import traceback
from dataclasses import dataclass, field
from typing import Any, Callable

# A component has no files, so modules that a function imports later must be loaded at build time.
for _name in (
    "base64", "binascii", "calendar", "collections", "csv", "datetime", "decimal", "email.utils", "fractions", "functools",
    "hashlib", "hmac", "html", "io", "ipaddress", "itertools", "operator", "random", "re", "statistics", "string", "struct",
    "textwrap", "time", "urllib.parse", "uuid", "xml.etree.ElementTree", "zlib",
):
    try:
        importlib.import_module(_name)
    except ImportError:
        pass

from componentize_py_types import Err
from wit_world.imports import cache, http, log, types
from wit_world.imports.types import (
    Dependency,
    Descriptor,
    Failure,
    Label,
    Member,
    PollError_Permanent,
    PollError_Transient,
    Report,
    Sample,
    SampleKind,
    SecretSpec,
    Setup,
    Status,
    Target,
)

__all__ = [
    "cache", "capture_cookie", "capture_header", "capture_json", "critical", "debug", "flag", "forget_secret", "gauge", "get",
    "get_all", "has_secret", "header", "info", "json", "Member", "number", "ok", "permanent", "Plugin", "PollFailure", "record",
    "Report", "SecretSpec", "send", "Setup", "Status", "Target", "text", "transient", "unexpected_shape", "unknown", "warn",
    "warning",
]

has_secret = http.has_secret
forget_secret = http.forget_secret


class PollFailure(Exception):
    """A poll that fails without a report."""

    def __init__(self, error):
        super().__init__(error.value.message)
        self.error = error


def transient(code: str, message: str, retry_after_ms: int | None = None) -> PollFailure:
    """A failure that another try may fix. Raise it."""
    return PollFailure(PollError_Transient(Failure(code, message, retry_after_ms)))


def permanent(code: str, message: str, retry_after_ms: int | None = None) -> PollFailure:
    """A failure that stays until an operator changes something. Raise it."""
    return PollFailure(PollError_Permanent(Failure(code, message, retry_after_ms)))


def debug(text: str) -> None:
    """Writes a line to the host's log, at most 100 lines per poll."""
    log.write(log.Level.DEBUG, text)


def info(text: str) -> None:
    log.write(log.Level.INFO, text)


def warn(text: str) -> None:
    log.write(log.Level.WARN, text)


_ADVICE = {
    401: ("unauthorized", "check the target's secret"),
    403: ("forbidden", "the target's secret lacks the required rights, is wrong or is missing"),
    404: ("not_found", "check the path in the target's URL"),
    408: ("request_timeout", "the server took too long to read the request"),
    429: ("too_many_requests", "the server requires fewer requests"),
}


def header(response: http.Response, name: str) -> str | None:
    """The value of the first header with this name, in any case; None if it is missing."""
    return next((h.value for h in response.headers if h.name.lower() == name.lower()), None)


def text(response: http.Response) -> str:
    """The body as text."""
    return response.body.decode("utf-8", errors="replace")


def json(response: http.Response) -> Any:
    """The body as JSON. A body that is not JSON is a transient failure, because proxies answer 200 with their own pages."""
    try:
        return _json.loads(response.body)
    except ValueError as error:
        raise transient("not_json", f"the body is not JSON ({error}): check that the URL is correct") from error


def _status_failure(response: http.Response) -> PollFailure:
    status = response.status
    if status in _ADVICE:
        code, advice = _ADVICE[status]
    elif status >= 500:
        code, advice = "server_error", "check the server's log"
    elif 300 <= status < 400:
        to = header(response, "location")
        code, advice = "redirect", "set the redirect's destination as the target's URL" + (f" ({to})" if to else "")
    else:
        code, advice = "unexpected_status", "check the target's URL"
    reason = f" {response.reason}" if response.reason else ""
    asked = header(response, "retry-after") or ""
    retry_after_ms = min(int(asked) * 1000, 4294967295) if asked.isdigit() else None
    make = transient if status >= 500 or status in (408, 425, 429) else permanent
    return make(code, f"the server answered {status}{reason}: {advice}", retry_after_ms)


def _http_failure(error: http.HttpError) -> PollFailure:
    return (transient if error.retryable else permanent)(error.code, error.message)


def capture_json(name: str, pointer: str, ttl_ms: int) -> http.Capture:
    """Stores the value at a JSON pointer of a 2xx answer as "${secret.NAME}". The plugin sees asterisks instead."""
    return http.Capture(name, http.CaptureSource_JsonPointer(pointer), ttl_ms)


def capture_header(name: str, header: str, ttl_ms: int) -> http.Capture:
    """Like `capture_json`, for a header's value."""
    return http.Capture(name, http.CaptureSource_Header(header), ttl_ms)


def capture_cookie(name: str, cookie: str, ttl_ms: int) -> http.Capture:
    """Like `capture_json`, for a cookie that the answer sets."""
    return http.Capture(name, http.CaptureSource_Cookie(cookie), ttl_ms)


def _request(path, method, headers, body, body_encoding, timeout_ms, captures) -> http.Request:
    pairs = [http.Header(name, value) for name, value in (headers or {}).items()]
    return http.Request(method, path, pairs, body, body_encoding, list(captures), timeout_ms)


def send(
    path: str,
    *,
    method: http.Method = http.Method.GET,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
    body_encoding: http.BodyEncoding = http.BodyEncoding.RAW,
    timeout_ms: int | None = None,
    captures: list[http.Capture] | tuple[()] = (),
) -> http.Response:
    """Sends a request and returns the response, whatever its status. The host fills in "${secret.NAME}" in headers and body."""
    try:
        return http.fetch(_request(path, method, headers, body, body_encoding, timeout_ms, captures))
    except Err as error:
        raise _http_failure(error.value) from None


def get(path: str, **options) -> http.Response:
    """Sends a GET request. Fails if the status is not 2xx."""
    response = send(path, **options)
    if not 200 <= response.status < 300:
        raise _status_failure(response)
    return response


def get_all(paths: list[str], headers: dict[str, str] | None = None) -> list[http.Response | PollFailure]:
    """Sends all requests at once. Returns a response or a failure for each, in the order of the paths."""
    requests = [_request(path, http.Method.GET, headers, None, http.BodyEncoding.RAW, None, ()) for path in paths]
    results: list[http.Response | PollFailure] = []
    for result in http.fetch_all(requests):
        if isinstance(result, Err):
            results.append(_http_failure(result.value))
        elif 200 <= result.value.status < 300:
            results.append(result.value)
        else:
            results.append(_status_failure(result.value))
    return results


def _dependency(name: str, status: Status, error_message: str | None, more: dict[str, Any]) -> Dependency:
    fields: dict[str, Any] = dict.fromkeys(
        ["title", "kind", "code", "latency_ms", "description", "impact", "checked_at", "error", "contact",
         "check_details", "parent"]
    )
    return Dependency(name=name, status=status, error_message=error_message, **{"skipped": False, **fields, **more})


def ok(name: str, **more) -> Dependency:
    """A healthy dependency, with optional fields (kind, code, latency_ms, parent, ...)."""
    return _dependency(name, Status.OK, None, more)


def warning(name: str, why: str, **more) -> Dependency:
    """A dependency that works but needs attention."""
    return _dependency(name, Status.WARNING, why, more)


def critical(name: str, why: str, **more) -> Dependency:
    """A dependency that does not work."""
    return _dependency(name, Status.CRITICAL, why, more)


def unknown(name: str, why: str, **more) -> Dependency:
    """A dependency whose status is unknown."""
    return _dependency(name, Status.UNKNOWN, why, more)


def gauge(name: str, value: float, **labels: str) -> Sample:
    """A number for the host's metrics."""
    return Sample(name, SampleKind.GAUGE, [Label(key, str(text)) for key, text in labels.items()], value)


def unexpected_shape(value: Any, expected: str) -> PollFailure:
    """A transient failure for a body with an unexpected shape. Raise it."""
    shown = repr(value)
    return transient("unexpected_shape", f"the body has {shown[:80]} where {expected} was expected")


def number(value: Any) -> float:
    """Returns a finite number from a number or text. Any other value fails the poll, so that it is never ok by accident."""
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise unexpected_shape(value, "a number")
    return found


def record(value: Any) -> dict[str, Any]:
    """Returns a JSON object. Any other value fails the poll."""
    if not isinstance(value, dict):
        raise unexpected_shape(value, "an object")
    return value


def flag(value: Any) -> bool:
    """Whether a flag is set: true for True, 1, "1", "true", "yes" and "on"."""
    return str(value).lower() in ("1", "1.0", "true", "yes", "on")


@dataclass
class Plugin:
    """A plugin's description, settings, and its `poll`, which receives the target and its settings."""

    kind: str
    title: str
    version: str
    summary: str
    poll: Callable[[Target, dict[str, Any]], Report]
    settings: dict[str, Any] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    secrets: list[SecretSpec] = field(default_factory=list)
    check: Callable[[dict[str, Any]], list[str]] = lambda settings: []
    interval_ms: int = 30_000
    timeout_ms: int = 10_000
    # For the command `polliwog setup`: how a service becomes a target, and its other members.
    setup: Setup | None = None
    members: Callable[[Target, dict[str, Any]], list[Member]] = lambda target, settings: []

    def _with_defaults(self, given: str) -> dict[str, Any]:
        return {name: schema.get("default") for name, schema in self.settings.items()} | _json.loads(given)

    def export(self, base):
        """Creates the contract's class: `Poller = plugin.export(exports.Poller)`."""
        plugin = self

        class Poller(base):
            def describe(self) -> Descriptor:
                schema = {
                    "type": "object", "additionalProperties": False,
                    "properties": plugin.settings, "required": plugin.required,
                }
                return Descriptor(
                    plugin.kind, plugin.title, plugin.version, plugin.summary, _json.dumps(schema), plugin.secrets,
                    plugin.interval_ms, plugin.timeout_ms, plugin.setup,
                )

            def members(self, target: Target) -> list[Member]:
                return plugin.members(target, plugin._with_defaults(target.settings))

            def check_settings(self, settings: str) -> list[str]:
                return plugin.check(plugin._with_defaults(settings))

            def poll(self, target: Target) -> Report:
                try:
                    report = plugin.poll(target, plugin._with_defaults(target.settings))
                    if not isinstance(report, Report):
                        raise TypeError(f"poll returned {type(report).__name__} instead of a Report")
                    return report
                except PollFailure as failure:
                    raise Err(failure.error) from None
                except Err:
                    raise
                except Exception as error:
                    # A fault of the plugin. The host's message contains the end of this output.
                    frames = traceback.extract_tb(error.__traceback__)
                    own = [frame for frame in frames if not frame.filename.endswith("polliwog.py")] or frames
                    where = own[-1]
                    file = where.filename.rsplit("/", 1)[-1]
                    print(f"{type(error).__name__}: {error} ({file}, line {where.lineno}, in {where.name})", file=sys.stderr)
                    # Drop the traceback, because the runtime would print it again.
                    raise error.with_traceback(None) from None

        return Poller
