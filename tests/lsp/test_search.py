"""The editor's search request."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.conftest import Opened
from tests.support import Client, ServerError, serving, write

Make = Callable[..., Opened]

GARDEN = """=== beds/tomato.md
---
tags: [fruit/red]
---
# Tomato

Water the seedlings.
=== 日志.md
# 日志

给番茄浇水。
"""


def found(here: Opened, **params: Any) -> list[str]:
    answer = here.client.request("vault/search", params)
    return [result["path"] for result in answer["results"]]


def test_a_result_says_where_to_open_it(opened: Make) -> None:
    here = opened(GARDEN)
    answer = here.client.request("vault/search", {"query": "seedlings"})
    (result,) = answer["results"]
    assert (answer["schema"], answer["semantic"], result["title"]) == (1, "off", "Tomato")
    assert result["uri"] == here.uri("beds/tomato.md")
    assert result["range"]["start"]["line"] == result["line_start"] - 1


@pytest.mark.parametrize(
    ("params", "paths"),
    [
        ({"query": "番茄"}, ["日志.md"]),
        ({"query": "water", "tags": ["#fruit"]}, ["beds/tomato.md"]),
        ({"query": "water", "area": "root"}, []),
        ({"query": "", "folder": "beds"}, ["beds/tomato.md"]),
        ({"query": '"AND (*'}, []),
        ({"query": "seedlings", "limit": 0}, ["beds/tomato.md"]),
        ({"query": "", "pathPrefix": "beds/tom"}, ["beds/tomato.md"]),
        ({"query": "", "pathPrefix": "tom"}, []),
        ({"query": "seedlings", "modifiedAfter": "1d"}, ["beds/tomato.md"]),
        ({"query": "seedlings", "modifiedBefore": "2020-01-31"}, []),
        ({"query": "seedlings", "kind": "text"}, []),
        ({"query": "tomato", "titleWeight": 0.5, "rerank": None, "mode": "keyword"}, ["beds/tomato.md"]),
        ({"query": "seedlings", "mode": "semantic"}, []),
    ],
)
def test_queries_and_filters(opened: Make, params: dict[str, Any], paths: list[str]) -> None:
    assert found(opened(GARDEN), **params) == paths


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"query": 3}, "query must be a text"),
        ({"query": "x", "tags": "a"}, "tags must be a list of texts"),
        ({"query": "x", "tags": [1]}, "tags must be a list of texts"),
        ({"query": "x", "kind": "book"}, "kind must be one of note, text"),
        ({"query": "x", "mode": ["hybrid"]}, "mode must be one of hybrid, keyword, semantic"),
        ({"query": "x", "limit": True}, "limit must be a whole number"),
        ({"query": "x", "titleWeight": -1}, "titleWeight must be a number from 0 to 100"),
        ({"query": "x", "rerank": 1}, "rerank must be true or false"),
        ({"query": "x", "modifiedAfter": "yesterday"}, "modifiedAfter: 'yesterday' is no date"),
        ({"query": "x", "pathprefix": "a"}, "pathprefix is no parameter of vault/search"),
        ([1], "parameters must be an object"),
        (None, "parameters must be an object"),
    ],
)
def test_parameters_that_can_not_be_used_are_named(opened: Make, params: Any, said: str) -> None:
    with pytest.raises(ServerError, match=re.escape(said)) as caught:
        opened("# A\n").client.request("vault/search", params)
    assert caught.value.code == -32602


def test_an_explained_result_names_its_channels(opened: Make) -> None:
    here = opened(GARDEN)
    (plain,) = here.client.request("vault/search", {"query": "seedlings"})["results"]
    (result,) = here.client.request("vault/search", {"query": "seedlings", "explain": True})["results"]
    assert set(result) - set(plain) == {"channels", "factors"}
    assert result["channels"]["bm25"]["rank"] == 1


def test_two_vaults_take_turns(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"a.md": "quince\n", "b.md": "quince pie\n"})
    two = write(tmp_path / "two", {"c.md": "quince\n"})
    client: Client
    with serving(tmp_path / "cache") as client:
        client.initialize(one, two)
        answer = client.request("vault/search", {"query": "quince", "limit": 2})
        status = client.request("vault/status", {})
    told = {key: answer[key] for key in ("schema", "query", "semantic", "embedded", "reranked", "note")}
    assert told == {
        "schema": 1,
        "query": "quince",
        "semantic": "off",
        "embedded": 0.0,
        "reranked": False,
        "note": "embedding.model is none",
    }
    assert [(each["vault"], each["documents"], each["semantic"]) for each in status["vaults"]] == [
        (one.as_uri(), 2, "off"),
        (two.as_uri(), 1, "off"),
    ]
    assert len({result["uri"].rsplit("/", 2)[-2] for result in answer["results"]}) == 2


def test_a_session_without_a_vault_finds_nothing(client: Client) -> None:
    answer = client.request("vault/search", {"query": "quince"})
    assert (answer["results"], answer["semantic"], answer["embedded"]) == ([], "off", 0.0)
