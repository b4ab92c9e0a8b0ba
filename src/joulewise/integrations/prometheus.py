"""An endpoint that Prometheus scrapes: `http://127.0.0.1:9835/metrics`.

It stands in processes with rights, so it is small: GET and HEAD alone, few connections at a time,
none for long, and nothing that a client sends is kept.
"""

from __future__ import annotations

import contextlib
import errno
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import HTTPServer
from socketserver import TCPServer, ThreadingMixIn
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry, MetricsHandler, generate_latest
from prometheus_client.exposition import choose_encoder

from joulewise.domain.control import ControlledGpu, DaemonCounts
from joulewise.domain.errors import BusyError, InputError, JoulewiseError, NotPermitted
from joulewise.integrations.metric_families import ControlCollector

METRICS_PATH = "/metrics"
_GREATEST_PORT = 65535
MAX_CONNECTION_COUNT = 32
"""More than that at once are turned away, those first that have asked for nothing yet."""
LONGEST_CONNECTION_S = 10.0
"""As long as Prometheus waits for an answer unless told otherwise; what takes longer is ended."""
LONGEST_REQUEST_S = 2.0
"""Within this time a client has to say what it wants."""
_FAULT_PERIOD_S = 60.0
_LONGEST_FAULT_COUNT = 300
_LISTEN = re.compile(
    r"(?:(?P<host>[^:\[\]/@\s]+|\[(?P<literal>[0-9A-Fa-f:.%\w]+)\]):)?(?P<port>[0-9]+)"
)
_EXAMPLES = "Say ADDRESS:PORT, such as 127.0.0.1:9835 or [::1]:9835."


class MetricsEndpoint:
    """A running endpoint; calling it ends it."""

    def __init__(self, server: _Server) -> None:
        """Serve on a thread of its own until the end."""
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, name="joulewise-metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is scraped."""
        host, port = self._server.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}{METRICS_PATH}"

    def __call__(self) -> None:
        """Close it; harmless when repeated."""
        with contextlib.suppress(OSError):
            # Else the thread would look half a second later.
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(
    listen: str,
    gpus: Callable[[], Sequence[ControlledGpu]],
    counts: Callable[[], DaemonCounts] | None = None,
    *,
    longest_connection_s: float = LONGEST_CONNECTION_S,
) -> MetricsEndpoint:
    """Serve what these tell, at every scrape anew.

    Args:
        listen: `ADDRESS:PORT`; a port alone listens on this machine only, port 0 takes any.
        gpus: What is known of each GPU; may be called from several threads at once.
        counts: What a daemon has done, where one serves this.
        longest_connection_s: A connection that takes longer is ended.

    Raises:
        InputError: `listen` is no address, or none of this machine.
        BusyError: somebody listens there already.
        NotPermitted: this account may not listen there.
    """
    host, port = parse_listen(listen)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        server = _Server(family, address, _registry(gpus, counts), longest_connection_s)
    except (OSError, UnicodeError) as error:
        raise _cannot_listen(listen, error) from error
    return MetricsEndpoint(server)


def metrics_text(
    gpus: Callable[[], Sequence[ControlledGpu]],
    counts: Callable[[], DaemonCounts] | None = None,
) -> str:
    """The same in Prometheus' text format, once."""
    return generate_latest(_registry(gpus, counts)).decode()


def parse_listen(listen: str) -> tuple[str, int]:
    """Address and port; raises InputError for what is none.

    An address is asked for: `:9835` means every address to some programs, and to others this
    machine alone.
    """
    match = _LISTEN.fullmatch(listen.strip())
    if match is None:
        hint = _EXAMPLES
        if re.fullmatch(r":\d+", listen.strip()):
            hint = f"{_EXAMPLES} 0.0.0.0{listen.strip()} is every address of this machine."
        raise InputError(f"{listen!r} is no address and port", field="listen", hint=hint)
    port = int(match["port"])
    if port > _GREATEST_PORT:
        raise InputError(
            f"{listen!r} has no port: the greatest is {_GREATEST_PORT}",
            field="listen",
            hint=_EXAMPLES,
        )
    return match["literal"] or match["host"] or "127.0.0.1", port


def _registry(
    gpus: Callable[[], Sequence[ControlledGpu]], counts: Callable[[], DaemonCounts] | None
) -> CollectorRegistry:
    """What is told here, and nothing that the client library tells of the process by itself."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ControlCollector(gpus, counts))
    return registry


def _cannot_listen(listen: str, error: Exception) -> JoulewiseError:
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.EADDRINUSE:
        return BusyError(
            f"another process listens on {listen}",
            hint="joulewised may serve its metrics there already; else say another port: --listen "
            "for joulewise metrics, metrics_listen for joulewised.",
        )
    if code in {errno.EACCES, errno.EPERM}:
        return NotPermitted(
            f"this account may not listen on {listen}", hint="Say a port above 1023."
        )
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return InputError(
        f"nothing can listen on {listen}: {reason.lower()}",
        field="listen",
        hint=f"Name an address of this machine. {_EXAMPLES}",
    )


_ROOT_PAGE = b'<!DOCTYPE html><title>joulewise</title><a href="/metrics">metrics</a>\n'


class _Handler(MetricsHandler):
    """Answers one question of a client that waits for it."""

    server: _Server

    def version_string(self) -> str:
        """What serves; not what it is made of."""
        return "joulewise"

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        """The metrics at their path, a way to them at the root."""
        self.server.note_asked(self.connection)
        match self._path():
            case None:
                self.send_error(400)
            case "/":
                self._answer(_ROOT_PAGE, "text/html; charset=utf-8")
            case path if path == METRICS_PATH:
                self._metrics()
            case _:
                self.send_error(404)

    def do_HEAD(self) -> None:  # noqa: N802 - the name that http.server calls
        """What GET would say, without the page itself: no GPU is asked for it."""
        self.server.note_asked(self.connection)
        match self._path():
            case None:
                self.send_error(400)
            case "/":
                self._answer(b"", "text/html; charset=utf-8")
            case path if path == METRICS_PATH:
                self._answer(b"", choose_encoder(self.headers.get("Accept", ""))[1])
            case _:
                self.send_error(404)

    def _path(self) -> str | None:
        """What is asked for; `None` where that cannot be read, or how to answer it cannot."""
        try:
            asked = urlsplit(self.path)
            parse_qs(asked.query)
        except ValueError:
            return None
        try:
            choose_encoder(self.headers.get("Accept", ""))
        except (ValueError, TypeError, LookupError):
            # A format that nobody knows: the usual one will do.
            del self.headers["Accept"]
        return asked.path

    def _metrics(self) -> None:
        try:
            super().do_GET()
        except OSError:
            # The scraper went away, or read too slowly.
            raise
        except Exception:
            # Whatever fails, it failed before anything was sent.
            self.send_error(500)
            raise

    def _answer(self, page: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        if page:
            self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)


@dataclass(slots=True)
class _Visit:
    """A connection: since when it is open, and whether it has said what it wants."""

    begun_s: float
    has_asked: bool = False


class _Server(ThreadingMixIn, HTTPServer):
    """A thread for each connection, within bounds of number and time."""

    daemon_threads = True
    # A client that reads slowly is nothing to wait for at the end.
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        family: int,
        address: tuple[object, ...],
        registry: CollectorRegistry,
        longest_s: float,
    ) -> None:
        """Listen. Raises OSError."""
        self._longest_s = longest_s
        self.address_family = socket.AddressFamily(family)
        self._open: dict[socket.socket, _Visit] = {}
        self._fault_told_s = float("-inf")
        self._lock = threading.Lock()
        handler = type("_BoundHandler", (_Handler,), {"registry": registry})
        super().__init__(address, handler)  # type: ignore[arg-type]

    def server_bind(self) -> None:
        """Bind, and look up no name of this machine, which may take long."""
        if self.address_family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "joulewise", self.server_address[1]

    def verify_request(self, request: object, client_address: object) -> bool:
        """Turn away what is too much: first whoever has waited longest without asking."""
        del client_address
        if not isinstance(request, socket.socket):
            return False
        with self._lock:
            if len(self._open) >= MAX_CONNECTION_COUNT and not self._drop_silent():
                return False
            self._open[request] = _Visit(time.monotonic())
        return True

    def _drop_silent(self) -> bool:
        """Make room for one; whether there was anybody to drop."""
        silent = next((one for one, visit in self._open.items() if not visit.has_asked), None)
        if silent is None:
            return False
        del self._open[silent]
        _end(silent)
        return True

    def note_asked(self, request: socket.socket) -> None:
        """It has said what it wants: it is not one of those that keep others out."""
        with self._lock:
            visit = self._open.get(request)
            if visit is not None:
                visit.has_asked = True

    def shutdown_request(self, request: object) -> None:
        """Forget it and close it."""
        if isinstance(request, socket.socket):
            with self._lock:
                self._open.pop(request, None)
        super().shutdown_request(request)  # type: ignore[arg-type]

    def service_actions(self) -> None:
        """End what takes too long; its thread then sees the end of the connection."""
        now_s = time.monotonic()
        with self._lock:
            for connection, visit in self._open.items():
                limit_s = self._longest_s
                if not visit.has_asked:
                    limit_s = min(limit_s, LONGEST_REQUEST_S)
                if now_s - visit.begun_s > limit_s:
                    _end(connection)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that went away; of what else fails one line, now and then.

        Whoever scrapes must not be able to fill the log.
        """
        del request, client_address
        error, now_s = sys.exception(), time.monotonic()
        with self._lock:
            if isinstance(error, OSError) or now_s - self._fault_told_s < _FAULT_PERIOD_S:
                return
            self._fault_told_s = now_s
        said = f"metrics could not be told: {type(error).__name__}: {error}"[:_LONGEST_FAULT_COUNT]
        sys.stderr.write("".join(one if one.isprintable() else "?" for one in said) + "\n")


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
