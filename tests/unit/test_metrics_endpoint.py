"""The endpoint that Prometheus scrapes: what it answers, to whom, and what it bears."""

from __future__ import annotations

import gzip
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from email.message import Message

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.domain.control import ControlledGpu
from joulewise.domain.errors import BusyError, InputError
from joulewise.integrations.prometheus import (
    MAX_CONNECTION_COUNT,
    MetricsEndpoint,
    parse_listen,
    serve_metrics,
)

GPU = ControlledGpu(uuid="GPU-1", name="GPU", device="nvml:GPU-1", is_simulated=False)
FREE_PORT = "127.0.0.1:0"
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
def serve() -> Iterator[Callable[..., MetricsEndpoint]]:
    """Start endpoints that end with the test."""
    with ExitStack() as stack:

        def start(
            listen: str = FREE_PORT,
            gpus: Callable[[], tuple[ControlledGpu, ...]] = lambda: (GPU,),
            *,
            longest_connection_s: float = 10.0,
        ) -> MetricsEndpoint:
            endpoint = serve_metrics(listen, gpus, longest_connection_s=longest_connection_s)
            stack.callback(endpoint)
            return endpoint

        yield start


def get(
    url: str, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, Message, bytes]:
    request = urllib.request.Request(url, headers=dict(headers or {}), method=method)  # noqa: S310
    try:
        with OPENER.open(request, timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


@contextmanager
def closing_call(endpoint: MetricsEndpoint) -> Iterator[None]:
    try:
        yield
    finally:
        endpoint()


def place(endpoint: MetricsEndpoint) -> tuple[str, int]:
    return parse_listen(endpoint.url.removeprefix("http://").removesuffix("/metrics"))


@pytest.mark.parametrize(
    ("accept", "answered", "last_line"),
    [
        ("*/*", "text/plain; version=0.0.4; charset=utf-8", "joulewise_lowered_idle"),
        (
            "application/openmetrics-text; version=1.0.0",
            "application/openmetrics-text; version=1.0.0",
            "# EOF",
        ),
    ],
)
def test_a_scraper_gets_the_format_that_it_asks_for(
    serve: Callable[..., MetricsEndpoint], accept: str, answered: str, last_line: str
) -> None:
    code, headers, body = get(serve().url, {"Accept": accept})

    assert 200 == code
    assert headers["Content-Type"].startswith(answered)
    assert body.decode().splitlines()[-1].startswith(last_line)
    assert 'joulewise_gpu_up{gpu="GPU-1"' in body.decode()


def test_an_answer_is_packed_for_who_takes_it_so(serve: Callable[..., MetricsEndpoint]) -> None:
    _, headers, body = get(serve().url, {"Accept-Encoding": "gzip"})

    assert "gzip" == headers["Content-Encoding"]
    assert b"joulewise_gpu_up" in gzip.decompress(body)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_sent_to_it(serve: Callable[..., MetricsEndpoint], method: str) -> None:
    assert 501 == get(serve().url, method=method)[0]


def test_the_root_leads_to_the_metrics_and_nothing_else_is_there(
    serve: Callable[..., MetricsEndpoint],
) -> None:
    root = serve().url.removesuffix("/metrics")

    assert b'href="/metrics"' in get(f"{root}/")[2]
    assert 404 == get(f"{root}/metrics/../etc/passwd")[0]
    assert 200 == get(f"{root}/metrics?name[]=joulewise_gpu_up")[0]


def test_every_scrape_asks_anew(serve: Callable[..., MetricsEndpoint]) -> None:
    asked = []

    def gpus() -> tuple[ControlledGpu, ...]:
        asked.append(1)
        return ()

    endpoint = serve(gpus=gpus)
    assert [] == asked
    for _ in range(3):
        get(endpoint.url)

    assert 3 == len(asked)


def test_it_listens_where_an_ipv6_address_says(serve: Callable[..., MetricsEndpoint]) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")

    endpoint = serve("[::1]:0")

    assert endpoint.url.startswith("http://[::1]:")
    assert 200 == get(endpoint.url)[0]


def test_an_address_that_is_taken_is_a_clear_error(serve: Callable[..., MetricsEndpoint]) -> None:
    host, port = place(serve())

    with pytest.raises(BusyError, match=f"another process listens on {host}:{port}") as caught:
        serve(f"{host}:{port}")

    assert caught.value.hint is not None
    assert "--listen" in caught.value.hint


@pytest.mark.parametrize(
    ("listen", "said"),
    [
        ("203.0.113.7:9835", "nothing can listen on 203.0.113.7:9835: cannot assign"),
        (f"{'a' * 70}:9835", "nothing can listen on aaa"),
        ("[::1", "no address and port"),
        ("::1:9835", "no address and port"),
        ("127.0.0.1", "no address and port"),
        ("127.0.0.1:", "no address and port"),
        ("http://127.0.0.1:9835", "no address and port"),
        ("127.0.0.1:65536", "the greatest is 65535"),
        ("127.0.0.1:-1", "no address and port"),
        ("", "no address and port"),
    ],
)
def test_a_bad_address_is_a_clear_error(listen: str, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("[", r"\[")) as caught:
        serve_metrics(listen, lambda: ())

    assert "listen" == caught.value.field
    assert caught.value.hint is not None
    assert "127.0.0.1:9835" in caught.value.hint


@pytest.mark.parametrize(
    ("listen", "found"),
    [
        ("9835", ("127.0.0.1", 9835)),
        ("0.0.0.0:9835", ("0.0.0.0", 9835)),  # noqa: S104 - one may ask for it
        ("localhost:1", ("localhost", 1)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
    ],
)
def test_an_address_is_read_as_written(listen: str, found: tuple[str, int]) -> None:
    assert found == parse_listen(listen)


def test_a_port_alone_is_open_to_this_machine_only_and_a_colon_says_nothing() -> None:
    assert "127.0.0.1" == parse_listen("9835")[0]
    with pytest.raises(InputError) as caught:
        parse_listen(":9835")

    assert caught.value.hint is not None
    assert "0.0.0.0:9835 is every address" in caught.value.hint


@given(st.text(alphabet=":[]0123456789abcdef.%/ \n\u0663", max_size=30))
def test_whatever_stands_there_is_an_address_or_an_error(listen: str) -> None:
    try:
        host, port = parse_listen(listen)
    except InputError:
        return
    assert host
    assert 0 <= port <= 65535


def test_once_closed_nobody_answers(serve: Callable[..., MetricsEndpoint]) -> None:
    endpoint = serve()
    where = place(endpoint)

    endpoint()
    endpoint()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where, timeout=5)


def test_a_scraper_is_told_where_reading_fails(
    serve: Callable[..., MetricsEndpoint], capfd: pytest.CaptureFixture[str]
) -> None:
    def broken() -> tuple[ControlledGpu, ...]:
        raise RuntimeError("a fault of ours")

    assert 500 == get(serve(gpus=broken).url)[0]

    said, pause = "", threading.Event()
    for _ in range(1000):
        # The operator's log comes after the answer.
        said += capfd.readouterr().err
        if "a fault of ours" in said:
            break
        pause.wait(0.01)
    assert "metrics could not be told: RuntimeError: a fault of ours\n" == said


def test_failing_scrapes_do_not_fill_the_log(
    serve: Callable[..., MetricsEndpoint], capfd: pytest.CaptureFixture[str]
) -> None:
    def broken() -> tuple[ControlledGpu, ...]:
        raise RuntimeError("a fault of ours")

    endpoint = serve(gpus=broken)
    assert [500] * 5 == [get(endpoint.url)[0] for _ in range(5)]
    endpoint()

    assert capfd.readouterr().err.count("\n") <= 1


def asked(endpoint: MetricsEndpoint, request: bytes) -> bytes:
    """All that is answered to these bytes."""
    with closing(socket.create_connection(place(endpoint), timeout=10)) as client:
        client.sendall(request)
        answer = b""
        while chunk := client.recv(1 << 16):
            answer += chunk
    return answer


def test_a_path_that_cannot_be_read_is_a_bad_request_and_nothing_to_log(
    serve: Callable[..., MetricsEndpoint], capfd: pytest.CaptureFixture[str]
) -> None:
    endpoint = serve()
    many = b"&".join(b"a=1" for _ in range(3))

    assert b"HTTP/1.0 400 " == asked(endpoint, b"GET http://[ HTTP/1.1\r\n\r\n")[:13]
    assert b"HTTP/1.0 400 " == asked(endpoint, b"HEAD http://[ HTTP/1.1\r\n\r\n")[:13]
    assert b"HTTP/1.0 200 " == asked(endpoint, b"GET /metrics?" + many + b" HTTP/1.1\r\n\r\n")[:13]
    assert "" == capfd.readouterr().err


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(("application/openmetrics-text", "text/plain", "*/*")),
    st.text(alphabet="version=escaping;,.0 1a-\u0663", max_size=30),
)
def test_whatever_format_is_asked_for_some_format_is_answered(kind: str, rest: str) -> None:
    endpoint = serve_metrics(FREE_PORT, lambda: (GPU,))
    with closing_call(endpoint):
        accept = f"{kind}; {rest}".encode()
        said = asked(endpoint, b"GET /metrics HTTP/1.1\r\nAccept: " + accept + b"\r\n\r\n")

    assert b"HTTP/1.0 200 " == said[:13]
    assert b"joulewise_gpu_up" in said


@pytest.mark.parametrize("accept", ["version=abc", "version=1.0.0; escaping=none", "version=9"])
def test_a_format_that_nobody_knows_is_answered_with_the_usual_one(
    serve: Callable[..., MetricsEndpoint], accept: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, body = get(serve().url, {"Accept": f"application/openmetrics-text; {accept}"})

    assert 200 == code
    assert b"joulewise_gpu_up" in body
    assert "" == capfd.readouterr().err


@pytest.mark.parametrize(("path", "code"), [("/metrics", 200), ("/", 200), ("/etc/passwd", 404)])
def test_whoever_asks_for_the_head_alone_is_told_it_without_a_look_at_any_gpu(
    serve: Callable[..., MetricsEndpoint], path: str, code: int
) -> None:
    asked_for = []

    def gpus() -> tuple[ControlledGpu, ...]:
        asked_for.append(1)
        return (GPU,)

    url = serve(gpus=gpus).url.removesuffix("/metrics")
    answered, headers, body = get(f"{url}{path}", method="HEAD")

    assert (code, b"", []) == (answered, body, asked_for)
    assert headers["Content-Type"].startswith("text/")


def test_who_says_nothing_is_sent_away(serve: Callable[..., MetricsEndpoint]) -> None:
    endpoint = serve(longest_connection_s=0.05)

    with closing(socket.create_connection(place(endpoint), timeout=10)) as silent:
        silent.sendall(b"GET /met")
        assert b"" == silent.recv(1)

    assert 200 == get(endpoint.url)[0]


def test_who_has_asked_for_nothing_is_turned_away_before_whoever_asks(
    serve: Callable[..., MetricsEndpoint],
) -> None:
    endpoint = serve()
    with ExitStack() as stack:
        crowd = [
            stack.enter_context(closing(socket.create_connection(place(endpoint), timeout=10)))
            for _ in range(MAX_CONNECTION_COUNT + 8)
        ]

        assert 200 == get(endpoint.url)[0]
        for early in crowd[:8]:
            assert b"" == early.recv(1)
        last = crowd[-1]
        last.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert last.recv(12) == b"HTTP/1.0 200"


def test_more_questions_at_once_than_a_few_are_turned_away_and_the_rest_go_on(
    serve: Callable[..., MetricsEndpoint],
) -> None:
    asked_count, all_asked, let_go = [0], threading.Semaphore(0), threading.Event()

    def gpus() -> tuple[ControlledGpu, ...]:
        asked_count[0] += 1
        all_asked.release()
        assert let_go.wait(10)
        return (GPU,)

    endpoint = serve(gpus=gpus)
    with ExitStack() as stack:
        stack.callback(let_go.set)
        crowd = []
        for _ in range(MAX_CONNECTION_COUNT):
            one = stack.enter_context(closing(socket.create_connection(place(endpoint), 10)))
            one.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert all_asked.acquire(timeout=10)
            crowd.append(one)
        late = stack.enter_context(closing(socket.create_connection(place(endpoint), 10)))
        assert b"" == late.recv(1)
        let_go.set()
        assert {b"HTTP/1.0 200"} == {one.recv(12) for one in crowd}

    assert MAX_CONNECTION_COUNT == asked_count[0]


def test_slow_reading_holds_up_no_other_scraper(serve: Callable[..., MetricsEndpoint]) -> None:
    asked, let_go = threading.Event(), threading.Event()

    def gpus() -> tuple[ControlledGpu, ...]:
        if not asked.is_set():
            asked.set()
            assert let_go.wait(10)
        return (GPU,)

    endpoint = serve(gpus=gpus)
    codes: list[int] = []
    slow = threading.Thread(target=lambda: codes.append(get(endpoint.url)[0]))
    slow.start()
    assert asked.wait(10)

    assert 200 == get(endpoint.url)[0]
    assert [] == codes
    let_go.set()
    slow.join()
    assert [200] == codes
