"""Where a link leads and what leads here: definition, references, document links."""

from __future__ import annotations

from functools import partial
from typing import Any

from lsprotocol import types

from vault_lsp.core.model import Found, Link
from vault_lsp.core.text import Place
from vault_lsp.lsp import convert
from vault_lsp.lsp.convert import Wire
from vault_lsp.lsp.look import Look
from vault_lsp.lsp.protocol import Json
from vault_lsp.lsp.server import VaultServer


def register(ls: VaultServer) -> None:
    """Registers the requests of this file."""
    ls.feature(types.TEXT_DOCUMENT_DEFINITION)(definition)
    ls.protocol.quick[types.TEXT_DOCUMENT_DEFINITION] = definition_from_memory
    ls.feature(types.TEXT_DOCUMENT_REFERENCES)(references)
    ls.feature(types.TEXT_DOCUMENT_DOCUMENT_LINK)(document_link)


async def definition(ls: VaultServer, params: types.DefinitionParams) -> Json | None:
    """What the link under the cursor leads to; null where there is none or it is broken."""
    return await ls.answer(params.text_document.uri, partial(_definition, position=params.position))


def definition_from_memory(ls: VaultServer, params: Any) -> Json | None:
    """The same for a request as it came, before pygls has made types of it; None where that is not enough."""
    try:
        uri, at = params["textDocument"]["uri"], params["position"]
        line, character = at["line"], at["character"]
        # Whatever else a client may send for a number is for pygls to convert or to refuse.
        if not (type(uri) is str and type(line) is type(character) is int):
            return None
        position = types.Position(line, character)
    except (TypeError, KeyError, ValueError):
        return None
    return ls.from_memory(uri, partial(_definition, position=position))


async def references(ls: VaultServer, params: types.ReferenceParams) -> Json | None:
    """Every link to what is under the cursor: a link's target, a heading, a block id, or the note itself."""
    job = partial(_references, position=params.position, declaration=params.context.include_declaration)
    return await ls.answer(params.text_document.uri, job, whole=True)


async def document_link(ls: VaultServer, params: types.DocumentLinkParams) -> Json | None:
    """Every link of the note that leads somewhere, with its target."""
    return await ls.answer(params.text_document.uri, _document_links)


def _definition(look: Look, position: types.Position) -> list[Wire] | None:
    point = look.point(position)
    if point is None:
        return None
    targets = look.view.definition(look.path, point)
    if not look.client.definition_links:
        return [convert.wire_location(look.uri(each.path), each.place, look.encoding) for each in targets] or None
    return [
        {
            "originSelectionRange": convert.wire_range(each.origin, look.encoding),
            "targetUri": look.uri(each.path),
            "targetRange": convert.wire_range(each.place, look.encoding),
            "targetSelectionRange": convert.wire_range(each.place, look.encoding),
        }
        for each in targets
    ] or None


def _references(look: Look, position: types.Position, *, declaration: bool) -> list[Wire] | None:
    point = look.point(position)
    if point is None:
        return None
    found = look.view.references(look.path, point, declaration=declaration)
    uris = {path: look.uri(path) for path in {each.path for each in found}}
    return [convert.wire_location(uris[each.path], each.place, look.encoding) for each in found] or None


def _document_links(look: Look) -> list[Wire] | None:
    if look.view.note(look.path) is None:
        return None
    links: list[Wire] = []
    for link, resolution in look.view.links(look.path):
        if isinstance(resolution, Found):
            target = look.uri(resolution.path)
            if resolution.anchor is not None:
                target += f"#L{resolution.anchor.start.line + 1}"
            links.append({"range": convert.wire_range(_shown(link), look.encoding), "target": target})
    return links


def _shown(link: Link) -> Place:
    """The part of a link that is underlined: a wikilink as a whole, of others the destination."""
    return link.place if link.kind == "wikilink" else link.target_place
