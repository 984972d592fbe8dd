"""The editor's search request."""

from __future__ import annotations

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
    ],
)
def test_queries_and_filters(opened: Make, params: dict[str, Any], paths: list[str]) -> None:
    assert found(opened(GARDEN), **params) == paths


@pytest.mark.parametrize("params", [{"query": 3}, {"query": "x", "tags": "a"}, {"query": "x", "kind": "book"}])
def test_parameters_of_a_wrong_kind_are_refused(opened: Make, params: dict[str, Any]) -> None:
    with pytest.raises(ServerError, match="must be"):
        found(opened(GARDEN), **params)


def test_two_vaults_take_turns(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"a.md": "quince\n", "b.md": "quince pie\n"})
    two = write(tmp_path / "two", {"c.md": "quince\n"})
    client: Client
    with serving(tmp_path / "cache") as client:
        client.initialize(one, two)
        answer = client.request("vault/search", {"query": "quince", "limit": 2})
    assert len({result["uri"].rsplit("/", 2)[-2] for result in answer["results"]}) == 2
