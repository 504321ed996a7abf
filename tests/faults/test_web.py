"""Bios at an http(s) address: fetched as documented, within bounds, from a real server."""

from __future__ import annotations

import datetime
import gc
import gzip
import ipaddress
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow import load_bios
from biasbios_mlflow.bios.sources import web

Answer = Callable[[BaseHTTPRequestHandler], None]


class WebServer:
    """Answers each path as told; keeps what it was asked."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.asked.append((self.path, self.headers.get("Authorization")))
                answer = server.answers.get(self.path.partition("?")[0])
                if answer is None:
                    self.send_error(404)
                else:
                    answer(self)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{scheme}://{self.host}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def gives(body: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Content-Length": str(len(body)), **told}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def sends_on(to: str) -> Answer:
    return gives(b"", 302, Location=to)


@pytest.fixture
def server() -> Iterator[WebServer]:
    server = WebServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def secure(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate[0]))
    server = WebServer(context)
    yield server
    server.close()


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return load_bios("sample", split="test").df.head(40)


@pytest.fixture(scope="module")
def csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False).encode()


def fails(url: str) -> str:
    with pytest.raises(MlflowException) as error:
        load_bios(url)
    assert error.value.error_code == "INVALID_PARAMETER_VALUE"
    return str(error.value.message)


class TestFetched:
    @pytest.mark.parametrize(
        ("path", "headers"),
        [
            ("/bios.csv", {}),
            ("/bios.csv?version=2", {}),
            ("/download", {"Content-Disposition": 'attachment; filename="bios.csv"'}),
            ("/download/", {"Content-Type": "text/csv; charset=utf-8"}),
            ("/..%2F..%2Fbios.csv", {}),
        ],
    )
    def test_the_format_is_found(
        self,
        path: str,
        headers: dict[str, str],
        server: WebServer,
        csv: bytes,
        table: pd.DataFrame,
    ) -> None:
        server.answers[path.partition("?")[0]] = gives(csv, **headers)
        found = load_bios(server.url + path)
        assert list(found.df["hard_text"]) == list(table["hard_text"])
        assert found.source.to_dict()["url"] == server.url + path

    def test_packed_or_unpacked_on_the_way(
        self, server: WebServer, csv: bytes, table: pd.DataFrame
    ) -> None:
        server.answers["/packed.csv.gz"] = gives(gzip.compress(csv))
        server.answers["/encoded.csv"] = gives(gzip.compress(csv), Content_Encoding="gzip")
        server.answers["/encoded.csv.gz"] = gives(gzip.compress(csv), Content_Encoding="gzip")
        for path in server.answers:
            assert len(load_bios(server.url + path).df) == len(table)

    def test_user_and_password_reach_the_server_and_nobody_else(
        self, server: WebServer, csv: bytes
    ) -> None:
        server.answers["/bios.csv"] = gives(csv)
        found = load_bios(f"http://ann:hunt%40r2@{server.host}/bios.csv?token=5e55ion")
        [(path, authorization)] = server.asked
        assert path == "/bios.csv?token=5e55ion"
        assert authorization == "Basic " + b64encode(b"ann:hunt@r2").decode()
        assert "hunt" not in str(found.to_dict()) + str(found.source.to_dict())
        assert "5e55ion" not in str(found.to_dict())

    def test_redirects_to_https_without_the_password(
        self, server: WebServer, secure: WebServer, csv: bytes
    ) -> None:
        server.answers["/here"] = sends_on("/there")
        server.answers["/there"] = sends_on(f"{secure.url}/bios.csv")
        secure.answers["/bios.csv"] = gives(csv)
        load_bios(f"http://ann:hunter2@{server.host}/here")
        assert [authorization is not None for _, authorization in server.asked] == [True, True]
        assert secure.asked == [("/bios.csv", None)]

    def test_a_busy_server_is_asked_again(self, server: WebServer, csv: bytes) -> None:
        def once(handler: BaseHTTPRequestHandler) -> None:
            last = len(server.asked) > 1
            (gives(csv) if last else gives(b"", 503, Retry_After="0"))(handler)

        server.answers["/bios.csv"] = once
        assert len(load_bios(f"{server.url}/bios.csv").df) == 40


class TestRefused:
    def test_redirects_to_plain_http(
        self, server: WebServer, secure: WebServer, csv: bytes
    ) -> None:
        server.answers["/bios.csv"] = gives(csv)
        secure.answers["/down"] = sends_on(f"{server.url}/bios.csv")
        assert "sends on to" in fails(f"{secure.url}/down")
        assert server.asked == []
        other = WebServer()
        other.answers["/away"] = sends_on(f"{server.url}/bios.csv")
        assert "https only" in fails(f"{other.url}/away")
        other.close()

    def test_redirects_elsewhere(self, server: WebServer) -> None:
        server.answers["/round"] = sends_on("/round")
        server.answers["/file"] = sends_on("file:///etc/passwd")
        assert "more than 5 times" in fails(f"{server.url}/round")
        assert "https only" in fails(f"{server.url}/file")

    @pytest.mark.parametrize(("status", "says"), [(401, "netrc"), (403, "signed"), (404, "check")])
    def test_status(self, status: int, says: str, server: WebServer) -> None:
        server.answers["/bios.csv"] = gives(b"no", status)
        told = fails(f"http://ann:hunter2@{server.host}/bios.csv?sig=5e55ion")
        assert str(status) in told
        assert says in told
        assert "hunter2" not in told
        assert "5e55ion" not in told

    def test_a_page_to_sign_in(self, server: WebServer) -> None:
        server.answers["/bios.csv"] = gives(b"<html>", Content_Type="text/html; charset=utf-8")
        assert "text/html" in fails(f"{server.url}/bios.csv")

    def test_no_server_and_no_trust(
        self, secure: WebServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(web, "_WAIT_SECONDS", 0.01)
        assert "cannot be fetched" in fails("http://127.0.0.1:9/bios.csv")
        monkeypatch.delenv("REQUESTS_CA_BUNDLE")
        assert "certificate" in fails(f"{secure.url}/bios.csv").lower()

    def test_broken_off(
        self, server: WebServer, csv: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(web, "_WAIT_SECONDS", 0.01)

        def half(handler: BaseHTTPRequestHandler) -> None:
            gives(csv[: len(csv) // 2], Content_Length=str(len(csv)))(handler)
            handler.close_connection = True

        server.answers["/bios.csv"] = half
        assert "cannot be fetched" in fails(f"{server.url}/bios.csv")
        assert len(server.asked) == 3

    @pytest.mark.parametrize("told", [True, False])
    def test_too_large(
        self, told: bool, server: WebServer, csv: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(web, "MOST_BYTES", 1000)
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(csv), csv)

        def untold(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            handler.wfile.write(chunked)

        server.answers["/bios.csv"] = gives(csv) if told else untold
        assert "too large" in fails(f"{server.url}/bios.csv")

    def test_silence_and_drops(
        self, server: WebServer, csv: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(web, "READ_SECONDS", 0.2)
        monkeypatch.setattr(web, "_PIECE", 16)
        monkeypatch.setattr(web, "_WAIT_SECONDS", 0.01)

        def drips(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("Content-Length", "100000000")
            handler.end_headers()
            for _ in range(100):
                handler.wfile.write(b"x" * 5)
                time.sleep(0.01)

        server.answers["/silent.csv"] = lambda handler: time.sleep(1)
        server.answers["/drips.csv"] = drips
        begun = time.monotonic()
        assert "cannot be fetched" in fails(f"{server.url}/silent.csv")
        assert "a second" in fails(f"{server.url}/drips.csv")
        assert time.monotonic() - begun < 20

    def test_nothing_is_left_behind(
        self, server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        server.answers["/bios.csv"] = gives(b"no,bios\n1,2\n")
        fails(f"{server.url}/bios.csv")
        fails(f"{server.url}/gone.csv")
        gc.collect()  # the errors hold what they came from
        left = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert [path.name for path in left] in ([], [".lock"])  # goes with the process
