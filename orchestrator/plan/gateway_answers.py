"""What the gateway itself says, always in OpenAI's error shape, so that a client's library can read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

# status -> (type, code, message) of the body in OpenAI's error shape. Lengths are filled in from the spec.
ERRORS: Mapping[int, tuple[str, str, str]] = {
    400: ("invalid_request_error", "bad_request", "This is not a valid HTTP request."),
    401: ("invalid_request_error", "invalid_api_key", "Missing or unknown API key. Send: Authorization: Bearer KEY."),
    404: ("invalid_request_error", "unknown_url", "Unknown request URL. Please check the URL for typos."),
    405: (
        "invalid_request_error",
        "method_not_supported",
        "Wrong method for this URL; see the Allow header.",
    ),
    408: ("invalid_request_error", "request_timeout", "The request did not arrive in time."),
    411: (
        "invalid_request_error",
        "length_required",
        "A body over {unsized} bytes needs a Content-Length header.",
    ),
    413: ("invalid_request_error", "request_too_large", "The body should have at most {body} bytes."),
    414: ("invalid_request_error", "url_too_long", "The URL is too long."),
    431: ("invalid_request_error", "headers_too_large", "The request headers are too large."),
    500: ("server_error", "internal_error", "The gateway met an internal error."),
    501: ("invalid_request_error", "not_implemented", "The gateway does not speak this part of HTTP."),
    502: ("server_error", "engine_failed", "The engine ended before it answered. Try again."),
    503: ("server_error", "not_ready", "The model is not ready. Try again later."),
    504: ("server_error", "engine_timeout", "The engine did not answer in time."),
}

# What HAProxy says by itself: it needs the whole response in a file, with the reason phrase.
OWN_ERRORS: Mapping[int, str] = {
    400: "Bad Request",
    408: "Request Timeout",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


@dataclass(frozen=True, slots=True)
class Answers:
    """The numbers that the answers carry: bytes and seconds."""

    max_body_bytes: int
    unsized_max_bytes: int
    retry_after_s: int

    def refuse(self, status: int, condition: str, allow: str = "") -> str:
        """A rule that answers ``status`` when ``condition`` holds; JSON in single quotes, where nothing is expanded."""
        headers = [*self._headers(status), *([("Allow", allow)] if allow else [])]
        words = "".join(f" hdr {name} {value}" for name, value in headers)
        body = self._body(status)
        return f"http-request return status {status} content-type application/json string '{body}'{words} {condition}"

    def file(self, status: int) -> str:
        """A whole response: the only form that HAProxy also uses where no rule was reached."""
        body = self._body(status)
        lines = [
            f"HTTP/1.1 {status} {OWN_ERRORS[status]}",
            "Connection: close",
            "Cache-Control: no-cache",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in self._headers(status)),
        ]
        return "".join(f"{line}\r\n" for line in [*lines, ""]) + body

    def _body(self, status: int) -> str:
        kind, code, text = ERRORS[status]
        message = text.format(body=self.max_body_bytes, unsized=self.unsized_max_bytes)
        return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})

    def _headers(self, status: int) -> list[tuple[str, str]]:
        again = [("Retry-After", str(self.retry_after_s))]
        return {401: [("WWW-Authenticate", "Bearer")], 502: again, 503: again}.get(status, [])
