"""`vault/search` and `vault/status`: for editors whose own symbol pickers drop what they can't match by name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest
from math import isfinite
from typing import Any, get_args

from pygls.exceptions import JsonRpcInvalidParams

from vault_lsp.lsp.look import Look
from vault_lsp.lsp.protocol import Json, encode
from vault_lsp.lsp.server import VaultServer
from vault_lsp.lsp.session import Root
from vault_lsp.ranking import Mode
from vault_lsp.search import Filters, Query, SearchResult, parse_date
from vault_lsp.view import View

SEARCH = "vault/search"
STATUS = "vault/status"

#: Hits that are sent at most: each of them means that its file is read.
_MOST = 200

#: A search waits so long for a model that is being loaded. Nobody waits for it on a thread that others need.
_MODEL_SECONDS = 3.0

#: What a client may send; tokens are what its library may add.
_FIELDS = frozenset(
    {
        *("query", "limit", "tags", "area", "folder", "pathPrefix", "modifiedAfter", "modifiedBefore", "kind"),
        *("mode", "titleWeight", "rerank", "explain", "workDoneToken", "partialResultToken"),
    }
)


def register(ls: VaultServer) -> None:
    """Registers the requests of this file."""
    ls.feature(SEARCH)(search)
    ls.feature(STATUS)(status)


async def search(ls: VaultServer, params: Any) -> Json:
    """The answer of `search --json`, each result with its `uri` and `range`; several vaults take turns."""
    query = _query(params)
    roots = list(ls.session.roots)
    answers = await asyncio.gather(*(_ask(ls, root, query) for root in roots))
    found = [(root, answer) for root, answer in zip(roots, answers, strict=True) if answer is not None]
    ranked = [
        [result for result in answer["results"] if ls.session.owns(root, result["uri"])] for root, answer in found
    ]
    turns = chain.from_iterable(zip_longest(*ranked))
    results = [result for result in turns if result is not None][: query.limit]
    return encode({**_together(query, [answer for _, answer in found]), "results": results})


async def _ask(ls: VaultServer, root: Root, query: Query) -> dict[str, Any] | None:
    await ls.ready(root, whole=True)
    keeper = ls.keepers.get(root.folder)
    if keeper is not None and query.text.strip() and query.mode != "keyword":
        await keeper.embedding.model(_MODEL_SECONDS)
    return await ls.read_root(root, partial(_search, query=query))


async def status(ls: VaultServer, _params: Any) -> Json:
    """What each vault of the session holds, and what is being done about it."""
    return encode({"schema": 1, "vaults": [await keeper.status() for keeper in list(ls.keepers.values())]})


def _search(look: Look, query: Query) -> dict[str, Any]:
    assert isinstance(look.view, View)
    answer = look.view.search(query, patient=False)
    shown = answer.as_json(look.root.folder if look.root is not None else "")
    for hit, result in zip(answer.hits, shown["results"], strict=True):
        # A note that is found by its name alone has no lines: its beginning stands for it.
        first, last = (hit.line_start or 1) - 1, hit.line_end or 1
        result["uri"] = look.uri(hit.path)
        result["range"] = {"start": {"line": first, "character": 0}, "end": {"line": last, "character": 0}}
    return shown


def _together(query: Query, answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is said of an answer as a whole; of several vaults each thing as it is true of all of them."""
    if not answers:
        return SearchResult(query.text, (), 0.0).as_json("")
    states = {answer["semantic"] for answer in answers}
    return {
        **answers[0],
        "semantic": states.pop() if len(states) == 1 else "partial",
        "embedded": min(answer["embedded"] for answer in answers),
        "reranked": all(answer["reranked"] for answer in answers),
        "took_ms": max(answer["took_ms"] for answer in answers),
        "note": "; ".join(dict.fromkeys(answer["note"] for answer in answers if answer["note"])),
    }


def _query(params: Any) -> Query:
    """The query of a client's parameters; InvalidParams with the name of what can't be used."""
    given = _Given(params)
    filters = Filters(
        tags=given.tags(),
        area=given.text("area"),
        folder=given.text("folder"),
        path_prefix=given.text("pathPrefix"),
        modified_after_ns=given.date("modifiedAfter"),
        modified_before_ns=given.date("modifiedBefore"),
        kind=given.one_of("kind", ("note", "text")),
    )
    return Query(
        given.text("query") or "",
        given.limit(),
        filters,
        title_weight=given.weight("titleWeight"),
        explain=given.flag("explain") or False,
        mode=given.one_of("mode", get_args(Mode)) or "hybrid",
        rerank=given.flag("rerank"),
    )


class _Given:
    """The parameters of a request, read one by one. What is absent or null is None."""

    def __init__(self, params: Any) -> None:
        fields = params if isinstance(params, Mapping) else getattr(params, "_asdict", lambda: None)()
        if not isinstance(fields, Mapping):
            raise JsonRpcInvalidParams("parameters must be an object")
        unknown = sorted(fields.keys() - _FIELDS)
        if unknown:
            raise JsonRpcInvalidParams(f"{unknown[0]} is no parameter of {SEARCH}")
        self._fields = fields

    def text(self, name: str) -> str | None:
        value = self._fields.get(name)
        if value is None or isinstance(value, str):
            return value
        raise JsonRpcInvalidParams(f"{name} must be a text")

    def flag(self, name: str) -> bool | None:
        value = self._fields.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise JsonRpcInvalidParams(f"{name} must be true or false")

    def one_of(self, name: str, choices: Sequence[str]) -> Any:
        value = self._fields.get(name)
        if value is None or value in choices:
            return value
        raise JsonRpcInvalidParams(f"{name} must be one of {', '.join(choices)}")

    def tags(self) -> tuple[str, ...]:
        value = self._fields.get("tags") or ()
        if isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(tag, str) for tag in value):
            return tuple(tag.strip().removeprefix("#") for tag in value)
        raise JsonRpcInvalidParams("tags must be a list of texts")

    def limit(self) -> int:
        value = self._fields.get("limit")
        if value is None:
            return 20
        if type(value) is not int:
            raise JsonRpcInvalidParams("limit must be a whole number")
        return max(1, min(value, _MOST))

    def weight(self, name: str) -> float | None:
        value = self._fields.get(name)
        if value is None:
            return None
        if type(value) not in {int, float} or not isfinite(value) or not 0 <= value <= 100:
            raise JsonRpcInvalidParams(f"{name} must be a number from 0 to 100")
        return float(value)

    def date(self, name: str) -> int | None:
        value = self.text(name)
        try:
            return None if value is None else parse_date(value)
        except ValueError as error:
            raise JsonRpcInvalidParams(f"{name}: {error}") from error
