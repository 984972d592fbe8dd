"""pygls' protocol with its defects repaired: every request gets exactly one answer, nothing leaks, nothing recurses.

What is overridden here is checked against the installed pygls by one contract test.
"""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInternalError,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcMethodNotFound,
    JsonRpcParseError,
    JsonRpcServerNotInitialized,
)
from pygls.protocol import LanguageServerProtocol

if TYPE_CHECKING:
    from vault_lsp.lsp.server import VaultServer

log = logging.getLogger(__name__)

#: Buffers and folders live in our own session. pygls' lines break at characters that end no line in LSP, so that its
#: copy of a text goes wrong, and it drops a folder that one event both removes and adds.
_OWN_STATE = (
    types.TEXT_DOCUMENT_DID_OPEN,
    types.TEXT_DOCUMENT_DID_CHANGE,
    types.TEXT_DOCUMENT_DID_CLOSE,
    types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS,
)

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class Json(str):
    """JSON text that is sent as it stands; made where an answer is computed, so that the loop needn't encode it."""

    __slots__ = ()


class RequestFailed(JsonRpcException):
    """A request that was right but can't be answered now."""

    CODE = types.LSPErrorCodes.RequestFailed.value
    MESSAGE = "Request failed"


def encode(value: object) -> Json:
    """JSON text of plain values. Goes down lists and `children`, so that no single step holds the interpreter long."""
    if isinstance(value, Json):
        return value
    if isinstance(value, (list, tuple)):
        return Json("[" + ",".join(map(encode, value)) + "]")
    if isinstance(value, dict) and "children" in value:
        rest = _compact({key: part for key, part in value.items() if key != "children"})
        return Json(f'{rest[:-1]},"children":{encode(value["children"])}}}')
    return Json(_compact(value))


class VaultProtocol(LanguageServerProtocol):
    """Dispatches the client's messages; all of it runs on the event loop."""

    _server: VaultServer

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Requests that may be answered from memory, before their parameters are made into types: None means no.
        self.quick: dict[str, Callable[[VaultServer, Any], Json | None]] = {}

    @property
    def was_shut_down(self) -> bool:
        """Whether the client has sent `shutdown`."""
        return self._shutdown

    def _register_builtin_features(self) -> None:
        super()._register_builtin_features()  # type: ignore[no-untyped-call]
        for method in _OWN_STATE:
            del self.fm.builtin_features[method]
        self.fm.builtin_features[types.SHUTDOWN] = self._shut_down
        self.fm.builtin_features[types.EXIT] = self._exit
        self.fm.builtin_features[types.WORKSPACE_EXECUTE_COMMAND] = self._execute_command

    def receive(self, body: bytes) -> None:
        """Handles one message. Never raises: a message that makes no sense is answered or logged."""
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            log.error("a message is not JSON: %s", error)  # noqa: TRY400  the place in our code says nothing
            self._send_response(None, error=JsonRpcParseError(str(error)).to_response_error())
            return
        if not isinstance(message, dict):
            self._send_response(None, error=JsonRpcInvalidRequest("a message is an object").to_response_error())
            return
        if not isinstance(message.get("id"), str | int | float | None):
            self._send_response(None, error=JsonRpcInvalidRequest("an id is a string or a number").to_response_error())
            return
        message.setdefault("jsonrpc", self.VERSION)
        try:
            if "method" in message:
                self._receive_call(message)
            else:
                self._receive_answer(message)
        except Exception:  # the boundary: one bad message must not end the server
            log.exception("a message could not be handled")

    def _receive_call(self, message: dict[str, Any]) -> None:
        """A request or a notification: refused with an error, dropped, or dispatched."""
        method, request = str(message["method"]), "id" in message
        try:
            self._admit(method, request=request)
            if request and (known := self._quick_answer(method, message.get("params"))) is not None:
                self._send_response(message["id"], known)
                return
            message.setdefault("params", None)
            parsed = self.structure_message(message)
        except JsonRpcException as error:
            cause = error.__cause__
            if request:
                if cause is not None:
                    error.message = f"{error.message}: {_first_cause(cause)}"
                self._send_response(message["id"], error=error.to_response_error())
            elif not isinstance(error, JsonRpcMethodNotFound):
                log.warning("dropped %s: %s", method, error.message)
            return
        self.handle_message(parsed)

    def _quick_answer(self, method: str, params: object) -> Json | None:
        """An answer from memory; None sends the request the ordinary way, also when this one fails."""
        if method not in self.quick:
            return None
        try:
            return self.quick[method](self._server, params)
        except Exception:  # the ordinary way answers with the error
            log.exception("%s could not be answered from memory", method)
            return None

    def _admit(self, method: str, *, request: bool) -> None:
        """Raises when the method is unknown or out of order in the life of a session."""
        if method == types.EXIT:
            return
        if self._shutdown:
            raise JsonRpcInvalidRequest("the server is shutting down")
        started = self._workspace is not None
        if method == types.INITIALIZE and started:
            raise JsonRpcInvalidRequest("the server is initialized already")
        if method not in (types.INITIALIZE, types.CANCEL_REQUEST, types.SET_TRACE) and not started:
            raise JsonRpcServerNotInitialized("the server is not initialized")
        if method != types.CANCEL_REQUEST:
            self._get_handler(method)
        elif request:
            raise JsonRpcMethodNotFound.of(method)

    def _receive_answer(self, message: dict[str, Any]) -> None:
        """The client's answer to a request of ours."""
        identity = message.get("id")
        expected = self._result_types.get(identity) if identity is not None else None  # popped by pygls or by `ask`
        future = self._request_futures.get(identity) if identity is not None else None
        if future is None or future.done():
            return
        message.setdefault("result" if "error" not in message else "error", None)
        try:
            self.handle_message(self.structure_message(message))
        except JsonRpcException as error:
            log.warning("the client's answer is not a %s: %s", getattr(expected, "__name__", "result"), error.message)
            future.set_exception(error)

    async def ask(self, method: str, params: object, timeout: float) -> Any:
        """The client's answer to a request. TimeoutError after `timeout` seconds, JsonRpcException for an error."""
        identity = str(uuid.uuid4())
        try:
            answer = self.send_request(method, params, msg_id=identity)
            return await asyncio.wait_for(asyncio.wrap_future(answer), timeout)
        finally:
            self._request_futures.pop(identity, None)
            self._result_types.pop(identity, None)

    def _execute_handler(
        self,
        msg_id: Any,
        handler: Callable[..., Any],
        callback: Callable[[Any], None],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        # pygls keeps the future of every notification with a generator or coroutine handler for ever.
        def finished(future: Future[Any]) -> None:
            self._request_futures.pop(msg_id, None)
            callback(future)

        super()._execute_handler(msg_id, handler, finished, args, kwargs)

    def cancel_all(self) -> None:
        """Cancels everything in flight."""
        for future in list(self._request_futures.values()):
            if not future.done():
                future.cancel()

    def _shut_down(self, *_args: object) -> None:
        """Cancels everything in flight. pygls iterates its table while the cancelling empties it (pygls#606)."""
        self._shutdown = True
        self.cancel_all()
        self._server.stop_work()

    def _exit(self, *_args: object) -> None:
        """Ends the process: 0 after a shutdown request, 1 without one (pygls returns 0 for both on some paths)."""
        self._server.end(0 if self._shutdown else 1)

    async def _execute_command(self, params: types.ExecuteCommandParams) -> object:
        """A coroutine, so that cancelling the request reaches the command."""
        command = self.fm.commands.get(params.command)
        if command is None:
            raise JsonRpcInvalidParams(f"unknown command {params.command!r}")
        return await command(*(params.arguments or ()))

    def _send_response(self, msg_id: Any, result: object = None, error: types.ResponseError | None = None) -> None:
        self._result_types.pop(msg_id, None)
        if error is None:
            self._send_frame(f'{{"jsonrpc":"2.0","id":{json.dumps(msg_id)},"result":{self.encode(result)}}}')
            return
        if error.code == JsonRpcInternalError.CODE:
            error = types.ResponseError(code=error.code, message=error.message)  # without the traceback
        self._send_frame(f'{{"jsonrpc":"2.0","id":{json.dumps(msg_id)},"error":{self.encode(error)}}}')

    def notify(self, method: str, params: object = None) -> None:
        """Sends a notification; `params` may be a type of lsprotocol, plain values or `Json`."""
        self._send_frame(f'{{"jsonrpc":"2.0","method":{json.dumps(method)},"params":{self.encode(params)}}}')

    def encode(self, value: object) -> Json:
        """JSON text of any value that may be sent."""
        return value if isinstance(value, Json) else encode(self._converter.unstructure(value))

    def _send_data(self, data: object) -> None:
        if data:
            self._send_frame(self.encode(data))

    def _send_frame(self, text: str) -> None:
        """Writes a frame. Own code: pygls logs every body, and reports a closed pipe through the same pipe."""
        if self.writer is None:
            return
        body = text.encode("utf-8", "replace")
        self.writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))


def _first_cause(error: BaseException) -> str:
    """The innermost message of a failed conversion, on one line."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return traceback.format_exception_only(error)[-1].strip()
