"""Diagnostics, pushed to clients that only listen and pulled by those that ask; the same findings both ways."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, TypeAlias

from lsprotocol import types

from vault_lsp.core.model import Note, NotePath
from vault_lsp.errors import Cancelled
from vault_lsp.lsp import convert
from vault_lsp.lsp.convert import Wire
from vault_lsp.lsp.look import Look
from vault_lsp.lsp.protocol import Json, encode
from vault_lsp.lsp.server import VaultServer
from vault_lsp.lsp.session import Root

#: URI, version of the open buffer, and diagnostics of one note.
_Checked: TypeAlias = tuple[str, int | None, Json]


def register(ls: VaultServer) -> None:
    """Registers the pull requests and the checks that follow changes."""
    options = types.DiagnosticOptions(identifier="vault-lsp", inter_file_dependencies=True, workspace_diagnostics=True)
    ls.feature(types.TEXT_DOCUMENT_DIAGNOSTIC, options)(document_diagnostic)
    ls.protocol.quick[types.TEXT_DOCUMENT_DIAGNOSTIC] = diagnostic_from_memory
    ls.feature(types.WORKSPACE_DIAGNOSTIC)(workspace_diagnostic)


async def document_diagnostic(ls: VaultServer, params: types.DocumentDiagnosticParams) -> Json:
    """The findings of one note, or that they are what the client has already."""
    items = await ls.answer(params.text_document.uri, findings) or Json("[]")
    return _report(items, params.previous_result_id)


def diagnostic_from_memory(ls: VaultServer, params: Any) -> Json | None:
    """The same for a request as it came, before pygls has made types of it; None where that is not enough."""
    try:
        uri, previous = params["textDocument"]["uri"], params.get("previousResultId")
    except (TypeError, KeyError, AttributeError):
        return None
    items = ls.from_memory(uri, findings) if isinstance(uri, str) else None
    return _report(items, previous) if items is not None else None


async def workspace_diagnostic(ls: VaultServer, params: types.WorkspaceDiagnosticParams) -> Json:
    """The findings of every note that has some, or had some when the client last asked.

    A note without findings that the client never heard of is left out: a vault has thousands of them.
    """
    known = {convert.file_of(each.uri) or each.uri: each for each in params.previous_result_ids}
    reports: list[Json] = []
    for root in list(ls.session.roots):
        for uri, version, items in await _vault_findings(ls, root):
            if not ls.session.owns(root, uri):
                continue
            before = known.pop(convert.file_of(uri) or uri, None)
            if items != "[]" or before is not None:
                reports.append(_workspace_report(uri, version, items, before.value if before else None))
    reports += [_workspace_report(each.uri, None, Json("[]"), each.value) for each in known.values()]
    return Json(f'{{"items":{encode(reports)}}}')


async def _vault_findings(ls: VaultServer, root: Root) -> list[_Checked]:
    """The findings of a whole vault, from the last time where nothing has changed since: editors ask every second."""
    state = (root.revision, ls.session.settings, *ls.session.buffers_in(root))
    if root.checked is None or root.checked[0] != state:
        checked = await ls.read_root(root, _all_findings)
        root.checked = (state, checked or [])
    return root.checked[1]


def _workspace_report(uri: str, version: int | None, items: Json, previous: str | None) -> Json:
    return Json(f'{_report(items, previous)[:-1]},"uri":{json.dumps(uri)},"version":{json.dumps(version)}}}')


def findings(look: Look) -> list[Wire]:
    """The diagnostics of one note."""
    return _findings(look, look.path)


def _findings(look: Look, path: NotePath) -> list[Wire]:
    if not look.settings.diagnostics_enable:
        return []
    diagnostics = []
    for finding in look.view.findings(path):
        related: Iterable[Wire] | None = None
        if look.client.related_information:
            related = [
                {
                    "location": convert.wire_location(look.uri(each.path), each.place, look.encoding),
                    "message": each.message,
                }
                for each in finding.related
            ]
        diagnostics.append(convert.wire_diagnostic(finding, look.encoding, related))
    return diagnostics


def _all_findings(look: Look) -> list[_Checked]:
    checked = []
    for path in look.view.paths():
        if look.cancelled():
            raise Cancelled("the request was cancelled")
        buffer = look.buffer(path)
        checked.append((look.uri(path), buffer.version if buffer else None, encode(_findings(look, path))))
    return checked


def _report(items: Json, previous: str | None) -> Json:
    result = hashlib.blake2b(items.encode("utf-8", "replace"), digest_size=12).hexdigest()
    if result == previous:
        return Json(f'{{"kind":"unchanged","resultId":"{result}"}}')
    return Json(f'{{"kind":"full","resultId":"{result}","items":{items}}}')


def check(look: Look, *, wanted: bool, first: bool) -> tuple[int, int, Json]:
    """Numbers for what others can link to in a note, and its diagnostics as JSON where they are wanted.

    The first number is of the buffer, the second of the index where the `first` check asks for it.
    """
    now = _surface(look.view.note(look.path))
    before = _surface(look.view.saved(look.path)) if first else now
    return now, before, encode(findings(look)) if wanted else Json("[]")


def _surface(note: Note | None) -> int:
    if note is None:
        return 0
    return hash(
        (
            tuple(alias.name for alias in note.aliases),
            tuple(heading.raw for heading in note.headings),
            tuple(block.id for block in note.blocks),
            tuple(anchor.name for anchor in note.anchors),
        )
    )
