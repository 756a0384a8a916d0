"""The gateway as text: one HAProxy configuration, its error files, and what runs it. Building them runs nothing.

``files`` is part of the plan and holds no secret: the two secret maps of ``gateway_keys`` stand beside them, named by
relative path. HAProxy's working folder is given by ``argv`` (``-C``), so the configuration is the same bytes wherever
the folder lies, and a folder's odd characters never meet HAProxy's own quoting.

Works with HAProxy 2.6 and later. Fails closed: a server starts disabled, only the agent's "up ready" opens it, and
it stays open only while ``GET /ready`` on the same agent answers 200.
"""

from __future__ import annotations

from orchestrator.plan.gateway_answers import OWN_ERRORS, Answers
from orchestrator.plan.gateway_keys import (
    ENGINE_FILE,
    KEYS_FILE,
    engine_map,
    is_key,
    key_hash,
    keys_map,
    known_hashes,
    map_changes,
)
from orchestrator.plan.gateway_spec import Backend, GatewaySpec, address, check, endpoint

__all__ = [
    "CONFIG_FILE",
    "ENGINE_FILE",
    "GET_PATHS",
    "KEYS_FILE",
    "POST_PATHS",
    "SOCKET_FILE",
    "Backend",
    "GatewaySpec",
    "argv",
    "check_argv",
    "engine_map",
    "files",
    "is_key",
    "key_hash",
    "keys_map",
    "known_hashes",
    "map_changes",
]

CONFIG_FILE = "haproxy.cfg"
SOCKET_FILE = "admin.sock"

# What a client may call, and nothing else: no tokenizer, no metrics, no scaling, no pages. Stored responses
# (/v1/responses/{id}) stay out: they belong to one replica, and any key could read another key's.
POST_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses",
)
GET_PATHS = ("/v1/models",)

# A body without Content-Length is read into one buffer before the engine sees any of it, because only a buffer has a
# known end. The buffer holds the largest such body, the largest head and its bookkeeping, with room to spare.
BUFFER_BYTES = 131072
UNSIZED_BODY_MAX_BYTES = 65536
HEADERS_MAX_BYTES = 16384
URL_MAX_BYTES = 8192


LOG_FIELDS = (
    ("at", "%Ts.%ms"),
    ("client", '"%ci"'),
    ("id", '"%[var(txn.request_id)]"'),
    ("key", '"%[var(txn.key)]"'),
    ("method", '"%HM"'),
    ("path", '"%[var(txn.path),json(utf8ps)]"'),
    ("status", "%ST"),
    ("server", '"%s"'),
    ("bytes_in", "%U"),
    ("bytes_out", "%B"),
    ("request_ms", "%TR"),
    ("wait_ms", "%Tw"),
    ("connect_ms", "%Tc"),
    ("first_ms", "%Tr"),
    ("total_ms", "%Ta"),
    ("end", '"%ts"'),
)


def files(spec: GatewaySpec) -> dict[str, str]:
    """File name -> text of everything but the secrets; equal specs give equal bytes. ``haproxy.cfg`` names the others.

    Raises ``ValueError`` when a name, an address, a port or a limit cannot stand in a configuration.
    """
    answers = _answers(spec)
    return {CONFIG_FILE: _config(spec), **{f"{status}.http": answers.file(status) for status in OWN_ERRORS}}


def _config(spec: GatewaySpec) -> str:
    check(spec)
    sections = [_global(spec), _defaults(spec), _api(spec), _engines(spec)]
    if spec.stats_port is not None:
        sections.append(_metrics(spec.stats_port))
    return "\n".join("\n    ".join(lines) + "\n" for lines in sections)


def argv(folder: str, binary: str = "haproxy") -> tuple[str, ...]:
    """What runs the gateway in the foreground, logging to its standard output: a child, or process 1 of a container."""
    return (binary, "-db", "-C", folder, "-f", CONFIG_FILE)


def check_argv(folder: str, binary: str = "haproxy") -> tuple[str, ...]:
    """What exits 0, and prints nothing but "valid", when HAProxy would take the files in ``folder``."""
    return (binary, "-c", "-C", folder, "-f", CONFIG_FILE)


def _global(spec: GatewaySpec) -> list[str]:
    return [
        "global",
        "log stdout len 8192 format raw local0 info",
        f"stats socket unix@{SOCKET_FILE} mode 600 level admin",
        f"maxconn {spec.max_connections}",
        f"nbthread {spec.threads}",
        f"tune.bufsize {BUFFER_BYTES}",
    ]


def _defaults(spec: GatewaySpec) -> list[str]:
    """What both faces share. ``http-no-delay`` and ``abortonclose`` are what make tokens and hang-ups pass at once."""
    return [
        "defaults",
        "mode http",
        "log global",
        "option dontlognull",
        "option http-no-delay",
        "option abortonclose",
        # The engine closes idle connections on its own clock; a request must never ride on one that is being closed.
        "option http-server-close",
        "option redispatch 1",
        "retries 1",
        # A host that vanished says nothing: without these its streams would hang until the idle timeout.
        "option clitcpka",
        "clitcpka-idle 60s",
        "clitcpka-intvl 15s",
        "clitcpka-cnt 4",
        "option srvtcpka",
        "srvtcpka-idle 10s",
        "srvtcpka-intvl 5s",
        "srvtcpka-cnt 3",
        "timeout connect 2s",
        f"timeout http-request {spec.request_timeout_s}s",
        "timeout http-keep-alive 10s",
        f"timeout client {spec.client_stall_s}s",
        f"timeout server {spec.idle_timeout_s}s",
        "timeout check 1s",
        *(f"errorfile {status} {status}.http" for status in OWN_ERRORS),
    ]


def _api(spec: GatewaySpec) -> list[str]:
    """The only face that clients see. The order is the meaning: route, key, readiness, size."""
    answers = _answers(spec)
    posts, gets = " ".join(POST_PATHS), " ".join(GET_PATHS)
    return [
        "frontend api",
        f"bind {endpoint(spec.bind_address, spec.bind_port)} proto h1",
        f"log-format '{_log_format()}'",
        *_name_of_request(),
        answers.refuse(414, f"if {{ url,length gt {URL_MAX_BYTES} }}"),
        answers.refuse(431, f"if {{ req.hdrs,length gt {HEADERS_MAX_BYTES} }}"),
        f"acl post_path path -m str {posts}",
        f"acl get_path path -m str {gets}",
        "acl health_path path -m str /health",
        "acl is_post method POST",
        "acl is_get method GET",
        answers.refuse(404, "unless post_path or get_path or health_path"),
        answers.refuse(405, "if post_path !is_post", "POST"),
        answers.refuse(405, "if !post_path !is_get", "GET"),
        "http-request set-log-level silent if health_path",
        'http-request return status 200 content-type application/json string \'{"status":"ready"}\''
        " if health_path { nbsrv(engines) gt 0 }",
        answers.refuse(503, "if health_path"),
        "http-request set-var(txn.key_hash) http_auth_bearer,sha2(256),hex,lower",
        "http-request set-var(txn.key_hash) req.fhdr(x-api-key),sha2(256),hex,lower"
        " unless { var(txn.key_hash) -m found }",
        f"http-request set-var(txn.key) var(txn.key_hash),map_str({KEYS_FILE})",
        answers.refuse(401, "unless { var(txn.key) -m found }"),
        answers.refuse(503, "unless { nbsrv(engines) gt 0 }"),
        answers.refuse(413, f"if {{ req.body_size gt {spec.max_body_bytes} }}"),
        # A number that does not fit an integer would be a small one here and a large one to the engine.
        answers.refuse(413, "if { req.fhdr(content-length),length gt 15 }"),
        "acl sized req.fhdr(content-length) -m found",
        f"http-request wait-for-body time {spec.request_timeout_s}s at-least {answers.unsized_max_bytes + 1}",
        answers.refuse(411, f"if !sized {{ req.body_len gt {answers.unsized_max_bytes} }}"),
        "default_backend engines",
    ]


def _name_of_request() -> list[str]:
    """The client's own id where it is a sane one, else a new one: for the log, the engine and the answer."""
    return [
        "acl named req.fhdr(x-request-id) -m reg ^[A-Za-z0-9._:-]{1,128}$",
        "http-request set-var(txn.request_id) req.fhdr(x-request-id) if named",
        "http-request set-var(txn.request_id) uuid() unless named",
        "http-request set-var(txn.path) path,bytes(0,256)",
        "http-after-response set-header X-Request-Id %[var(txn.request_id)]",
    ]


def _engines(spec: GatewaySpec) -> list[str]:
    """The replicas. Running streams are left alone when one goes down: they end when their engine does.

    Three looks must fail in a row, so one slow answer of a busy machine closes nothing. An agent that died refuses them
    quickly (about 1 s in all); one that hangs takes three check timeouts (about 4 s).
    """
    return [
        "backend engines",
        "balance leastconn",
        "option httpchk",
        "http-check send meth GET uri /ready ver HTTP/1.1 hdr Host gateway",
        "http-check expect status 200",
        f'http-request set-header Authorization "Bearer %[str(engine),map_str({ENGINE_FILE})]"',
        "http-request del-header x-api-key",
        "http-request set-header X-Request-Id %[var(txn.request_id)]",
        "http-request set-header X-Forwarded-For %[src]",
        "default-server check inter 500ms fastinter 250ms downinter 500ms rise 1 fall 3 agent-check agent-inter 500ms",
        *(_server(backend) for backend in spec.backends),
    ]


def _server(backend: Backend) -> str:
    return (
        f"server {backend.name} {endpoint(backend.host, backend.port)}"
        f" addr {address(backend.agent_host)} port {backend.ready_port}"
        f" agent-addr {address(backend.agent_host)} agent-port {backend.check_port} disabled"
    )


def _metrics(port: int) -> list[str]:
    return [
        "frontend metrics",
        f"bind 127.0.0.1:{port}",
        "no log",
        "http-request use-service prometheus-exporter if { path -m str /metrics }",
        "http-request return status 404",
    ]


def _log_format() -> str:
    """One JSON object a request: who, what, how it ended, how many bytes, how long. Never a key, a query or a body."""
    return "{" + ",".join(f'"{name}":{value}' for name, value in LOG_FIELDS) + "}"


def _answers(spec: GatewaySpec) -> Answers:
    unsized = min(UNSIZED_BODY_MAX_BYTES, spec.max_body_bytes)
    return Answers(spec.max_body_bytes, unsized, spec.retry_after_s)
