"""`vault/search`: search for editors, whose own symbol pickers drop what they can't match by name."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain, zip_longest
from typing import Any

from pygls.exceptions import JsonRpcInvalidParams

from vault_lsp.lsp.look import Look
from vault_lsp.lsp.protocol import Json, encode
from vault_lsp.lsp.server import VaultServer
from vault_lsp.search import Filters, Query
from vault_lsp.view import View

METHOD = "vault/search"

_MOST = 200


def register(ls: VaultServer) -> None:
    """Registers the request of this file."""
    ls.feature(METHOD)(search)


async def search(ls: VaultServer, params: Any) -> Json:
    """The answer of `search --json`, each result with its `uri` and `range`; several vaults take turns."""
    query = _query(params)
    roots = list(ls.session.roots)
    answers = await asyncio.gather(*(ls.read_root(root, partial(_search, query=query)) for root in roots))
    found = [answer for answer in answers if answer is not None]
    ranked: list[list[Any]] = [
        [result for result in answer["results"] if ls.session.owns(root, result["uri"])]
        for root, answer in zip(roots, answers, strict=True)
        if answer is not None
    ]
    turns = chain.from_iterable(zip_longest(*ranked))
    results = [result for result in turns if result is not None][: query.limit]
    head = found[0] if found else {"schema": 1, "query": query.text, "vault": None, "semantic": "off"}
    return encode({**head, "results": results})


def _search(look: Look, query: Query) -> dict[str, Any]:
    assert isinstance(look.view, View)
    answer = look.view.search(query)
    shown = answer.as_json(look.root.folder if look.root is not None else "")
    for hit, result in zip(answer.hits, shown["results"], strict=True):
        # A note that is found by its name alone has no lines: its beginning stands for it.
        first, last = (hit.line_start or 1) - 1, hit.line_end or 1
        result["uri"] = look.uri(hit.path)
        result["range"] = {"start": {"line": first, "character": 0}, "end": {"line": last, "character": 0}}
    return shown


def _query(params: Any) -> Query:
    """The query of a client's parameters; InvalidParams with the name of what can't be used."""
    limit = _field(params, "limit", int, 20)
    tags = getattr(params, "tags", None) or ()
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise JsonRpcInvalidParams("tags must be a list of texts")
    kind = _field(params, "kind", str, None)
    if kind not in (None, "note", "text"):
        raise JsonRpcInvalidParams("kind must be note or text")
    filters = Filters(
        tags=tuple(tag.removeprefix("#") for tag in tags),
        area=_field(params, "area", str, None),
        folder=_field(params, "folder", str, None),
        kind=kind,
    )
    return Query(
        _field(params, "query", str, ""),
        max(1, min(limit, _MOST)),
        filters,
        explain=_field(params, "explain", bool, default=False),
    )


def _field(params: Any, name: str, kind: type, default: Any) -> Any:
    value = getattr(params, name, None)
    if value is None:
        return default
    if type(value) is not kind:
        raise JsonRpcInvalidParams(f"{name} must be a {kind.__name__}")
    return value
