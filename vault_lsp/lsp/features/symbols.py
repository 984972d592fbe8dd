"""Names: the outline of one note, and everything that has a name in the vaults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import chain, zip_longest

from lsprotocol import types

from vault_lsp.core.text import Point
from vault_lsp.lsp import convert
from vault_lsp.lsp.convert import Wire
from vault_lsp.lsp.look import Look
from vault_lsp.lsp.protocol import Json, encode
from vault_lsp.lsp.server import VaultServer
from vault_lsp.lsp.session import Session


def register(ls: VaultServer) -> None:
    """Registers the requests of this file."""
    ls.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)(document_symbol)
    ls.feature(types.WORKSPACE_SYMBOL)(workspace_symbol)


async def document_symbol(ls: VaultServer, params: types.DocumentSymbolParams) -> Json | None:
    """The headings of a note, nested where the client knows nesting."""
    return await ls.answer(params.text_document.uri, _document_symbols)


async def workspace_symbol(ls: VaultServer, params: types.WorkspaceSymbolParams) -> Json:
    """Notes, aliases, headings and tags whose names match, best first; then notes by what they say and mean.

    An empty query lists the latest notes. While somebody types, a newer request ends the search for texts in older
    ones, which then answer with names alone.
    """
    limit = ls.session.settings.symbols_limit
    ls.session.searches += 1
    superseded = partial(_superseded, ls.session, ls.session.searches)
    job = partial(_workspace_symbols, query=params.query, limit=limit, superseded=superseded)
    roots = list(ls.session.roots)
    answers = await asyncio.gather(*(ls.read_root(root, job) for root in roots))
    owned = (
        [symbol for uri, symbol in answer or () if ls.session.owns(root, uri)]
        for root, answer in zip(roots, answers, strict=True)
    )
    ranked = chain.from_iterable(zip_longest(*owned))
    return encode([symbol for symbol in ranked if symbol is not None][:limit])


def _document_symbols(look: Look) -> list[Wire] | None:
    note = look.view.note(look.path)
    if note is None:
        return None
    if not look.client.nested_symbols:
        return convert.wire_flat_symbols(note.headings, look.uri(look.path), look.encoding)
    text = look.text()
    end = text.point(len(text)) if text is not None else Point(1 << 30, 0, 0, 0)
    return convert.wire_outline(note.headings, end, look.encoding)


def _superseded(session: Session, number: int) -> bool:
    """Whether symbols were asked for again; may be called in any thread."""
    return session.searches != number


def _workspace_symbols(
    look: Look, query: str, limit: int, superseded: Callable[[], bool] = lambda: False
) -> list[tuple[str, Wire]]:
    symbols: list[tuple[str, Wire]] = []
    for found in look.view.symbols(query, limit, superseded):
        if not found.name.strip():
            continue
        uri = look.uri(found.path)
        symbol: Wire = {
            "name": found.name,
            "kind": convert.symbol_kind(found.kind),
            "location": convert.wire_location(uri, found.place, look.encoding),
        }
        if found.container:
            symbol["containerName"] = found.container
        symbols.append((uri, symbol))
    return symbols
