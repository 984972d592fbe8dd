"""What only the graph of all notes tells: which note, by which rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from vault_lsp.core.graph import Node, graph_findings
from vault_lsp.core.model import NotePath
from vault_lsp.core.rules import TOP, HealthConfig

_DAY = 86_400 * 10**9
_ROLES = {"wiki": ("wiki/**",), "clippings": ("clips/**",), "archive": ("old/**",)}


def found(links: Mapping[str, str], config: HealthConfig | None = None, *, day: int = 0) -> set[tuple[str, str]]:
    """The findings (rule, path) of notes by name, each with the names that it links to; all were written on day 0."""
    nodes = {
        NotePath(path): Node(TOP, {NotePath(target): TOP for target in targets.split()}, 0)
        for path, targets in links.items()
    }
    told = graph_findings(nodes, config or HealthConfig(roles=_ROLES), day * _DAY)
    return {(each.rule, each.path) for each in told}


def only(rule: str, all_of: Iterable[tuple[str, str]]) -> set[str]:
    return {path for name, path in all_of if name == rule}


@pytest.mark.parametrize(
    ("links", "isolated"),
    [
        ({"hub": "a", "a": "", "lone": ""}, {"lone"}),
        ({"self": "self", "hub": "a", "a": ""}, {"self"}),
        ({"a": "picture.png"}, set()),
        ({"templates/day": "", "a": "b", "b": ""}, set()),
        ({}, set()),
    ],
)
def test_a_note_without_a_link_in_or_out_is_isolated(links: dict[str, str], isolated: set[str]) -> None:
    assert only("isolated-note", found(links)) == isolated


@pytest.mark.parametrize(
    ("links", "weak"),
    [
        ({"a": "b c", "b": "c", "c": "", "d": "a"}, {"d"}),
        ({"a": "b c", "b": "c", "c": "a", "x": "y", "y": "x"}, {"x", "y"}),
        ({"a": "b c", "b": "c", "c": "a"}, set()),
    ],
)
def test_a_note_that_hangs_by_a_thread_is_weakly_connected(links: dict[str, str], weak: set[str]) -> None:
    assert only("weakly-connected", found(links)) == weak


@pytest.mark.parametrize(
    ("links", "owing"),
    [
        ({"wiki/a": "wiki/b", "wiki/b": ""}, {"wiki/b"}),
        ({"wiki/a": "wiki/b", "wiki/b": "wiki/a"}, set()),
        ({"log": "wiki/b", "wiki/b": ""}, set()),
        ({"wiki/a": "log", "log": ""}, set()),
    ],
)
def test_wiki_notes_link_back(links: dict[str, str], owing: set[str]) -> None:
    assert only("missing-backlink", found(links)) == owing


@pytest.mark.parametrize(
    ("links", "uncited"),
    [
        ({"clips/x": "", "wiki/a": "clips/x"}, set()),
        ({"clips/x": "", "log": "clips/x"}, {"clips/x"}),
        ({"clips/x": "wiki/a", "wiki/a": ""}, {"clips/x"}),
    ],
)
def test_a_clipping_is_cited_by_a_wiki_note(links: dict[str, str], uncited: set[str]) -> None:
    assert only("unsourced-clipping", found(links)) == uncited


def test_without_a_wiki_no_clipping_is_uncited() -> None:
    config = HealthConfig(roles={"clippings": ("clips/**",)})
    assert only("unsourced-clipping", found({"clips/x": ""}, config)) == set()


@pytest.mark.parametrize(("day", "stale"), [(29, set()), (30, {"old/a"})])
def test_an_archive_grows_stale(day: int, stale: set[str]) -> None:
    config = HealthConfig(roles=_ROLES, archive_after_days=30)
    assert only("stale-archive", found({"old/a": "b", "b": ""}, config, day=day)) == stale
