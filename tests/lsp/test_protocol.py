"""The repairs of pygls, and that the parts which they replace are still there."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any

import pytest
from lsprotocol import types
from pygls.protocol import JsonRPCProtocol, LanguageServerProtocol

from vault_lsp.lsp.protocol import Json, VaultProtocol, encode
from vault_lsp.lsp.server import VaultServer, create


class Wire:
    """Collects what is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def write(self, data: bytes) -> None:
        header, _, body = data.partition(b"\r\n\r\n")
        assert header == b"Content-Length: %d" % len(body)
        self.sent.append(json.loads(body))

    def close(self) -> None: ...


async def started() -> tuple[VaultServer, Wire]:
    server, wire = create(), Wire()
    server.protocol.set_writer(wire)
    say(server, 0, "initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    await asyncio.sleep(0)
    wire.sent.clear()
    return server, wire


def say(server: VaultServer, identity: int | None, method: str, params: object) -> None:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    server.protocol.receive(json.dumps(message if identity is None else {**message, "id": identity}).encode())


def finish(server: VaultServer) -> None:
    server.stop_work()
    assert server.finish()


def test_pygls_still_has_what_is_replaced() -> None:
    expected = {
        "_execute_handler": ["self", "msg_id", "handler", "callback", "args", "kwargs"],
        "_send_response": ["self", "msg_id", "result", "error"],
        "_send_data": ["self", "data"],
        "_register_builtin_features": ["self"],
        "_get_handler": ["self", "feature_name"],
        "structure_message": ["self", "data"],
        "handle_message": ["self", "message"],
        "notify": ["self", "method", "params"],
    }
    for name, parameters in expected.items():
        original = getattr(LanguageServerProtocol, name)
        assert list(inspect.signature(original).parameters) == parameters
        replaced = vars(VaultProtocol).get(name, original)
        assert list(inspect.signature(replaced).parameters) == parameters
    source = inspect.getsource(JsonRPCProtocol.__init__)
    assert all(name in source for name in ("_request_futures", "_result_types", "_shutdown", "self.fm"))


def test_pygls_still_registers_what_is_dropped() -> None:
    async def run() -> None:
        server = create()
        dropped = {"textDocument/didOpen", "textDocument/didChange", "textDocument/didClose"}
        assert not dropped & set(server.protocol.fm.builtin_features)
        assert dropped <= set(server.protocol.fm.features)
        finish(server)

    asyncio.run(run())


def test_no_message_leaves_anything_behind() -> None:
    async def run() -> None:
        server, _wire = await started()
        uri = "untitled:a"
        item = {"uri": uri, "languageId": "markdown", "version": 1, "text": "# A\n"}
        say(server, None, "textDocument/didOpen", {"textDocument": item})
        for version in range(2, 302):
            changes = {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"text": f"# {version}\n"}]}
            say(server, None, "textDocument/didChange", changes)
            say(server, version, "textDocument/documentSymbol", {"textDocument": {"uri": uri}})
            say(server, None, "$/setTrace", {"value": "off"})
        while server.protocol._request_futures:
            await asyncio.sleep(0.01)
        assert not server.protocol._result_types
        say(server, None, "textDocument/didClose", {"textDocument": {"uri": uri}})
        assert not server.session.documents
        finish(server)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[" * 200_000, -32700),
        (b'{"jsonrpc": "2.0", "id": [1], "method": "shutdown"}', -32600),
        (b'{"jsonrpc": "2.0", "id": {"a": 1}, "result": null}', -32600),
    ],
)
def test_a_message_without_a_usable_id_is_answered_with_an_error(body: bytes, code: int) -> None:
    async def run() -> None:
        server, wire = await started()
        server.protocol.receive(body)
        assert [(each["id"], each["error"]["code"]) for each in wire.sent] == [(None, code)]
        finish(server)

    asyncio.run(run())


def test_what_fails_from_memory_is_answered_the_ordinary_way() -> None:
    async def run() -> None:
        server, wire = await started()

        def fails(*_arguments: object) -> None:
            raise OverflowError

        server.protocol.quick["textDocument/definition"] = fails
        position = {"line": 0, "character": 0}
        say(server, 1, "textDocument/definition", {"textDocument": {"uri": "untitled:a"}, "position": position})
        async with asyncio.timeout(5):
            while not wire.sent:
                await asyncio.sleep(0.01)
        assert wire.sent == [{"jsonrpc": "2.0", "id": 1, "result": None}]
        finish(server)

    asyncio.run(run())


def test_shutdown_answers_and_cancels_what_is_in_flight() -> None:
    async def run() -> None:
        server, wire = await started()
        running = asyncio.Event()

        async def slow(*_arguments: object) -> None:
            running.set()
            await asyncio.sleep(60)

        server.command("slow")(slow)
        say(server, 1, "workspace/executeCommand", {"command": "slow"})
        await running.wait()
        say(server, 2, "shutdown", None)
        await asyncio.sleep(0.05)
        assert {each["id"]: each.get("error", {}).get("code") for each in wire.sent} == {1: -32800, 2: None}
        assert server.protocol.was_shut_down
        finish(server)

    asyncio.run(run())


def test_cancelling_a_command_stops_its_coroutine() -> None:
    async def run() -> None:
        server, wire = await started()
        ended: list[str] = []
        running = asyncio.Event()

        async def slow(*_arguments: object) -> None:
            running.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        server.command("slow")(slow)
        say(server, 7, "workspace/executeCommand", {"command": "slow"})
        await running.wait()
        say(server, None, "$/cancelRequest", {"id": 7})
        await asyncio.sleep(0.05)
        assert (ended, [each["error"]["code"] for each in wire.sent]) == (["cancelled"], [-32800])
        finish(server)

    asyncio.run(run())


def test_an_error_while_sending_is_not_sent() -> None:
    async def run() -> None:
        server, wire = await started()
        server.report_server_error(ValueError("no"), ValueError)
        assert wire.sent == []
        finish(server)

    asyncio.run(run())


def test_a_client_that_never_answers_is_given_up() -> None:
    async def run() -> None:
        server, wire = await started()
        parameters = types.WorkDoneProgressCreateParams(token="t")
        with pytest.raises(TimeoutError):
            await server.protocol.ask("window/workDoneProgress/create", parameters, 0.01)
        late = {"jsonrpc": "2.0", "id": wire.sent[0]["id"], "result": None}
        server.protocol.receive(json.dumps(late).encode())
        assert not server.protocol._request_futures
        assert not server.protocol._result_types
        finish(server)

    asyncio.run(run())


def test_json_is_compact_and_keeps_text_as_it_is() -> None:
    children = [{"name": "二", "children": []}]
    assert encode([{"name": "一 🌱", "children": children}]) == (
        '[{"name":"一 🌱","children":[{"name":"二","children":[]}]}]'
    )
    assert encode([Json("1"), None, "a\ud800"]) == '[1,null,"a\ud800"]'
