"""The live page: who may see it, who may stop a run with it, and that it is new."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from made_runs import make_run, signals_of, trained

from muster.report.live import LivePage
from muster.run import RunDirectory, RunDirectoryError
from muster.run.claim import ask_to_stop, living_writer

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", status="failed")


@pytest.fixture
def live(run):
    page = LivePage(run)
    thread = threading.Thread(target=page.serve)
    thread.start()
    yield page
    page.close()
    thread.join()


@pytest.fixture
def ask(live):
    """Return a function that sends a request and returns status, headers and content."""
    place = urlsplit(live.url)

    def send(method="GET", path=None, **headers):
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
        connection.putrequest(method, f"/?{place.query}" if path is None else path, skip_host=True)
        names = {"Host": place.netloc, **{k.replace("_", "-"): v for k, v in headers.items()}}
        for name, value in names.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, answer.headers, content.decode()

    send.place = place
    send.token = place.query.partition("=")[2]
    return send


def test_the_page_is_served_to_whom_its_address_was_printed(ask):
    status, headers, content = ask()
    assert status == 200 and "ppo on CartPole-v1" in content and 'id="stop"' in content
    assert headers["Cache-Control"] == "no-store" and headers["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers
    assert ask(Host=f"localhost:{ask.place.port}")[0] == 200
    assert ask.token not in content


def test_half_a_character_in_a_file_does_not_end_the_page(ask, run):
    (run / "env.json").write_text('{"cpu": "half \\ud800"}')
    status, _, content = ask()
    assert status == 200 and "half ?" in content


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "", None, "[::1]:80"])
def test_a_foreign_host_is_refused(host, ask):
    assert ask(Host=host)[0] == 403


def test_a_second_host_is_refused(ask):
    with socket.create_connection((ask.place.hostname, ask.place.port)) as raw:
        name = ask.place.netloc.encode()
        query = ask.place.query.encode()
        raw.sendall(b"GET /?%b HTTP/1.1\r\nHost: %b\r\nHost: evil\r\n\r\n" % (query, name))
        assert b" 403 " in raw.recv(100)


@pytest.mark.parametrize("query", ["", "?token=", "?token=x", "?token=%00%ff", "?tok=1"])
@pytest.mark.parametrize("path", ["/", "/events"])
def test_without_the_token_nothing_is_shown(path, query, ask):
    status, _, content = ask(path=path + query)
    assert (status, content) == (403, "Forbidden\n")


@pytest.mark.parametrize(
    "method", ["HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "POST"]
)
def test_any_other_method_is_refused(method, ask):
    status, headers, _ = ask(method)
    assert status == 405 and headers["Allow"] == "GET"


@pytest.mark.parametrize(
    "path",
    [
        "/config.yaml", "/../../etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd", "/%2e%2e/",
        "/metrics.jsonl", "/stop", "/page.js", "/.writer.json", "/events/../config.yaml",
        "file:///etc/passwd",
    ],
)  # fmt: skip
def test_no_file_is_served_by_its_path(path, ask):
    status, _, content = ask(path=f"{path}?token={ask.token}")
    assert status == 404 and content == "Not Found\n"


def test_the_server_listens_on_the_loopback_only(ask):
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port, listening = f"{ask.place.port:04X}", "0A"
    assert [row[1] for row in rows if row[1].endswith(f":{port}") and row[3] == listening] == [
        f"0100007F:{port}"
    ]
    assert f":{port} " not in Path("/proc/net/tcp6").read_text()


def stop_headers(ask, **changes):
    right = {"Origin": f"http://{ask.place.netloc}", "X_Muster_Token": ask.token}
    return right | changes


def test_a_run_is_not_stopped_by_another_page(ask, run):
    own, port = ask.place.netloc, ask.place.port
    with trained(run) as child:
        for changes in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": None},
            {"Origin": f"https://{own}"},
            {"X_Muster_Token": None},
            {"X_Muster_Token": "x"},
            {"Host": "evil.example"},
            {"Host": f"localhost:{port}"},  # not that of the Origin
        ):
            assert ask("POST", "/stop", **stop_headers(ask, **changes))[0] == 403, changes
        assert ask("POST", f"/stop?token={ask.token}", **stop_headers(ask))[0] == 405
        assert signals_of(child) == 0


def test_a_run_is_asked_to_stop_once_however_often_the_button_is_pressed(ask, run):
    with trained(run) as child:
        status, _, content = ask("POST", "/stop", **stop_headers(ask))
        assert (status, content) == (200, "The run was asked to save and stop.")
        assert "already" in ask("POST", "/stop", **stop_headers(ask))[2]
        assert signals_of(child) == 1
    assert ask("POST", "/stop", **stop_headers(ask))[2] == "No process is training this run."


def test_a_process_that_has_only_the_id_of_the_writer_gets_no_signal(run, monkeypatch):
    """The id may be another's by now: what counts is when the process began."""
    with trained(run) as child:
        writer = living_writer(run)
        late = replace(writer, started=writer.started + 1)  # it took the id after we had looked
        with monkeypatch.context() as patch:
            patch.setattr("muster.run.claim.living_writer", lambda directory: late)
            assert ask_to_stop(run) is None
        record = run / ".writer.json"
        told = json.loads(record.read_text())
        record.write_text(json.dumps(told | {"started": told["started"] + 1}))
        assert living_writer(run) is None and ask_to_stop(run) is None
        record.write_text(json.dumps(told | {"system": "elsewhere", "host": "elsewhere"}))
        with pytest.raises(RunDirectoryError, match="cannot be stopped from here"):
            ask_to_stop(run)
        record.write_text(json.dumps(told))
        assert signals_of(child) == 0


def events(place):
    """Yield what the server tells, as it comes."""
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    connection.request("GET", f"/events?{place.query}")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    while line := answer.readline():
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def test_the_page_is_told_what_is_new(ask, run):
    told = events(ask.place)
    first = next(told)
    assert first["status"] == "failed" and "eval/return" in first["html"]
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"env_step": 9000, "train_iter": 1, "seconds": 1, "own/<b>": 1}\n')
    assert "own/&lt;b&gt;" in next(told)["html"]
    with RunDirectory.open(run, writable=True):
        assert next(told)["running"] is True
    assert next(told)["running"] is False


def test_a_run_whose_process_is_killed_is_said_to_have_failed(ask, run):
    with trained(run) as child:
        told = events(ask.place)
        assert next(told)["status"] == "running"
        child.kill()
        child.wait()
        assert next(told)["status"] == "failed"


def test_a_run_that_is_removed_is_said_to_be_gone(ask, run):
    told = events(ask.place)
    next(told)
    run.rename(run.with_name("elsewhere"))
    assert next(told)["status"] == "gone"


def test_connections_without_end_do_not_keep_the_owner_out(ask, monkeypatch):
    monkeypatch.setattr("muster.report.live._Handler.timeout", 0.5)
    idle = [socket.create_connection((ask.place.hostname, ask.place.port)) for _ in range(40)]
    for one in idle:
        one.settimeout(20)
        assert one.recv(1) == b""  # each is given up after its time, or at once if there are many
        one.close()
    assert ask()[0] == 200


def test_the_command_prints_an_address_and_ctrl_c_ends_it_without_a_traceback(run):
    child = subprocess.Popen(
        [sys.executable, "-m", "muster", "watch", run],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    child.stdout.readline()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}\n", child.stdout.readline())
    os.kill(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=20)
    assert (child.returncode, errors) == (130, "")
