"""The life of the process: how it begins, what it survives, how it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import PATIENCE, Client, ServerError, environment, frames, serving, write


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Client]:
    with serving(tmp_path / "cache") as running:
        yield running


def error_of(client: Client, method: str, params: object = None) -> int:
    with pytest.raises(ServerError) as caught:
        client.request(method, params)
    return int(caught.value.code)


def test_a_session_ends_with_zero_after_shutdown_and_exit(fresh: Client) -> None:
    assert error_of(fresh, "workspace/symbol", {"query": ""}) == -32002
    fresh.initialize()
    assert error_of(fresh, "initialize", {"processId": None, "rootUri": None, "capabilities": {}}) == -32600
    assert fresh.request("shutdown") is None
    assert error_of(fresh, "workspace/symbol", {"query": ""}) == -32600
    fresh.notify("textDocument/didOpen", {"textDocument": {}})
    fresh.notify("exit")
    assert fresh.ended() == 0


def test_exit_without_shutdown_ends_with_one(fresh: Client) -> None:
    fresh.initialize()
    fresh.notify("exit")
    assert fresh.ended() == 1


def test_exit_before_initialize_ends_with_one(fresh: Client) -> None:
    fresh.notify("exit")
    assert fresh.ended() == 1


@pytest.mark.parametrize(("shut_down", "code"), [(True, 0), (False, 1)])
def test_the_end_of_input_ends_the_server(fresh: Client, shut_down: bool, code: int) -> None:  # noqa: FBT001
    fresh.initialize()
    if shut_down:
        fresh.request("shutdown")
    assert fresh.process.stdin is not None
    fresh.process.stdin.close()
    assert fresh.ended(5) == code


def test_a_signal_ends_the_server(fresh: Client) -> None:
    fresh.initialize()
    fresh.process.send_signal(signal.SIGTERM)
    assert fresh.ended(5) == 1


def test_the_server_ends_when_its_client_dies(fresh: Client) -> None:
    """Also when another process keeps the pipe open, as this test does."""
    with subprocess.Popen(["sleep", "60"]) as parent:
        fresh.initialize(processId=parent.pid)
        parent.kill()
    assert fresh.ended(10) == 1


def test_a_client_whose_process_can_not_be_seen_is_served(fresh: Client) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    fresh.initialize(processId=gone.pid)
    time.sleep(0.1)
    assert fresh.request("workspace/symbol", {"query": ""}) == []


def test_ending_in_the_middle_of_a_first_index_leaves_no_process(tmp_path: Path) -> None:
    root = write(tmp_path / "vault", {f"n{i}.md": f"# {i}\n" + "words and more words\n" * 800 for i in range(200)})
    with serving(tmp_path / "cache") as client:
        client.initialize(root)
        client.wait_for(lambda: [x for x in client.notified("vault/status") if x["phase"] == "indexing"])
        started = time.monotonic()
        assert client.close() == 0
        assert time.monotonic() - started < 4
    time.sleep(0.3)
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(root) not in running


def test_what_makes_no_sense_is_answered_and_survived(fresh: Client) -> None:
    fresh.initialize()
    position = {"textDocument": {"uri": "file:///a.md"}, "position": {"line": "x", "character": 0}}
    assert error_of(fresh, "textDocument/definition", position) == -32602
    assert error_of(fresh, "textDocument/definition", {}) == -32602
    assert error_of(fresh, "textDocument/definition", [1]) == -32602
    assert error_of(fresh, "textDocument/definition") == -32602
    assert error_of(fresh, "textDocument/notAMethod", {"a": 1}) == -32601
    assert error_of(fresh, "notAMethod") == -32601
    assert error_of(fresh, "workspace/executeCommand", {"command": "no.such"}) == -32602
    fresh.notify("textDocument/didOpen", {"textDocument": {"uri": "file:///a.md"}})
    fresh.notify("textDocument/didChange", {"textDocument": {"uri": "file:///never.md", "version": 2}})
    fresh.notify("textDocument/didClose", {"textDocument": {"uri": "file:///never.md"}})
    fresh.notify("textDocument/didSave", {"textDocument": {"uri": "nothing"}})
    fresh.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": "file:///never.md", "type": 3}]})
    fresh.notify("$/unknown", {"a": 1})
    fresh.notify("unknown/notification")
    fresh.notify("$/cancelRequest", {"id": 12345})
    fresh.notify("workspace/didChangeConfiguration", {"settings": 5})
    fresh.send(id=None, result=None)
    fresh.send(id="never", error={"code": 1, "message": "no"})
    fresh.send_bytes(b"Content-Length: 3\r\n\r\n{]}")
    fresh.send_bytes(b"Content-Length: 2\r\n\r\n[]")
    fresh.send_bytes(b"Content-Length: 4\r\n\r\nnull")
    fresh.send_bytes(b"Content-Length: 2\r\n\r\n\xff\xfe")
    assert fresh.request("workspace/symbol", {"query": ""}) == []
    broken = [json.loads(body) for body in fresh.bodies if b'"id":null' in body]
    assert [each["error"]["code"] for each in broken] == [-32700, -32600, -32600, -32700]


def test_nothing_but_frames_reaches_stdout(tmp_path: Path) -> None:
    """The framing of every byte is checked, with each kind of writer of stdout let loose in the server."""
    loud = """
import atexit, os, subprocess, sys, warnings
def shout():
    print('print'); os.write(1, b'fd'); subprocess.run(['echo', 'child'])
import vault_lsp.lsp.features.symbols as symbols
quiet = symbols._workspace_symbols
def loud(*args, **named):
    shout(); warnings.warn('warning'); return quiet(*args, **named)
symbols._workspace_symbols = loud
from vault_lsp.lsp import serve
sys.exit(serve())
"""
    root = write(tmp_path / "vault", {"标题.md": "# 标题 一\n\n知识管理 [[b]]\n", "b.md": "---\ncreated: {{x}}\n---\n"})
    (tmp_path / "loud.py").write_text(loud)
    variables = {
        **environment(),
        "VAULT_LSP_INDEX_DIR": str(tmp_path / "cache"),
        "PYTHONWARNINGS": "default",
        "PYTHONUNBUFFERED": "1",
    }
    messages = [
        {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": root.as_uri(), "capabilities": {}}},
        {"method": "initialized", "params": {}},
        {"id": 2, "method": "workspace/symbol", "params": {"query": "标题"}},
    ]
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "loud.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=variables,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        for message in messages:
            body = json.dumps({"jsonrpc": "2.0", **message}).encode()
            server.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        server.stdin.flush()
        received = b""
        while '标题 一"'.encode() not in received:
            received += os.read(server.stdout.fileno(), 1 << 16)
        for message in ({"id": 3, "method": "shutdown"}, {"method": "exit"}):
            body = json.dumps({"jsonrpc": "2.0", **message}).encode()
            server.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        server.stdin.close()
        received += server.stdout.read()
        log = server.stderr.read()
    assert server.returncode == 0
    taken = list(frames(received))
    assert taken[-1][1] == len(received)
    assert 3 in [json.loads(body).get("id") for body, _ in taken]
    assert all(word in log for word in (b"print", b"fd", b"child", b"warning"))


def test_a_closed_stderr_is_no_obstacle() -> None:
    body = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"processId":null,"rootUri":null,"capabilities":{}}}'
    )
    command = 'exec "$0" -m vault_lsp lsp 2>&-'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable],
        input=b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
        stdout=subprocess.PIPE,
        env=environment(),
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert [json.loads(answer)["id"] for answer, _ in frames(done.stdout)] == [1]


def test_a_client_may_connect_by_tcp(tmp_path: Path) -> None:
    client = Client(tmp_path / "cache", arguments=("--tcp", "127.0.0.1:0"))
    try:
        client.wait_for(lambda: True)
        while b"listening on" not in client.errors:
            time.sleep(0.02)
            assert client.process.poll() is None, client.errors.decode()
        port = int(client.errors.split(b"127.0.0.1:")[1].split()[0])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            stream = connection.makefile("rwb")
            for message in (
                {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}},
                {"id": 2, "method": "shutdown"},
                {"method": "exit"},
            ):
                body = json.dumps({"jsonrpc": "2.0", **message}).encode()
                stream.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            stream.flush()
            answers = [json.loads(body) for body, _ in frames(stream.read())]
        assert [answer["id"] for answer in answers] == [1, 2]
        assert client.ended() == 0
    finally:
        client.kill()


def test_an_index_that_is_deleted_under_the_server_comes_back(tmp_path: Path) -> None:
    root = write(tmp_path / "vault", {"a.md": "[[b]]\n", "b.md": "# Quince\n"})
    with serving(tmp_path / "cache") as client:
        client.initialize(root)
        query = {"query": "quince"}
        client.wait_for(lambda: client.request("workspace/symbol", query))
        for folder in (tmp_path / "cache").iterdir():
            shutil.rmtree(folder)
        client.wait_for(lambda: client.request("workspace/symbol", query))
        assert client.at("definition", (root / "a.md").as_uri(), 0, 3)


@pytest.mark.parametrize("length", [0, 5000])
def test_an_index_that_is_damaged_under_the_server_is_made_anew(tmp_path: Path, length: int) -> None:
    notes = {f"n{number}.md": f"# Quince {number}\n[[a]]\n" for number in range(40)}
    root = write(tmp_path / "vault", {"a.md": "# Apple\n", **notes})
    with serving(tmp_path / "cache") as client:
        client.initialize(root)
        query = {"query": "quince"}
        client.wait_for(lambda: len(client.request("workspace/symbol", query)) >= len(notes))
        (index,) = (tmp_path / "cache").glob("*/index-*.db")
        for _ in range(2):  # by then SQLite has noticed
            os.truncate(index, length)
            with suppress(ServerError):
                client.request("workspace/symbol", {"query": "apple"})
        asked = {"context": {"includeDeclaration": False}}
        assert len(client.at("references", (root / "a.md").as_uri(), 0, 3, **asked)) == len(notes)
        assert len(client.request("workspace/symbol", query)) >= len(notes)
