"""Names of the vault as an editor asks for them: titles, aliases, headings, tags, and notes by what they say."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import vault as fixture
from tests.support import write
from vault_lsp.core.model import Note, NotePath
from vault_lsp.errors import Cancelled
from vault_lsp.service import Vault

GARDEN = """=== a/fig.md
---
aliases: [Ficus carica]
---
# Fig
## Pruning
### Tools [for](x.md) **winter** `cuts`
=== b.md
# Bees
prune the hedge
=== calendar.md
---
tags: [garden/tree]
---
text without heading #year
=== 菜园/浇水.md
# 浇水计划
每天早上给番茄浇水
"""


class Symbols:
    """A vault that is asked for names."""

    def __init__(self, vault: Vault) -> None:
        self.vault = vault
        self.open: dict[NotePath, Note] = {}

    def __call__(self, query: str, limit: int = 20) -> list[str]:
        """The answer as `name (kind) container:line`."""
        with self.vault.view(self.open) as view:
            found = view.symbols(query, limit)
        assert len(found) <= limit
        return [f"{each.name} ({each.kind}) {each.container}:{each.place.start.line}" for each in found]

    def buffer(self, path: str, text: str) -> None:
        self.open[NotePath(path)] = self.vault.parse(NotePath(path), text)


class Newer:
    """A question that comes after the one before it has looked for it so many times."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.has_come = False

    def __call__(self) -> bool:
        self.looks -= 1
        self.has_come = self.looks < 0
        return self.has_come


@pytest.fixture
def symbols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Symbols]]:
    monkeypatch.setenv("VAULT_LSP_INDEX_DIR", str(tmp_path / "index"))
    opened: list[Vault] = []

    def make(text: str) -> Symbols:
        files = fixture(text).files
        root = write(tmp_path / f"vault{len(opened)}", files)
        for age, path in enumerate(files):
            os.utime(root / path, (time.time() - 100 - age,) * 2)
        opened.append(Vault.open(root))
        opened[-1].reconcile()
        return Symbols(opened[-1])

    yield make
    for vault in opened:
        vault.close()


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("prun", "Pruning (heading) a/fig:4"),
        ("PRUNING", "Pruning (heading) a/fig:4"),
        ("ficus", "Ficus carica (alias) a/fig:0"),
        ("fcr", "Ficus carica (alias) a/fig:0"),
        ("fig", "Fig (note) a/fig:3"),
        ("calen", "calendar (note) calendar:0"),
        ("tools for winter", "Tools for winter cuts (heading) a/fig:5"),
        ("winter tools", "Tools for winter cuts (heading) a/fig:5"),
        ("浇水", "浇水 (note) 菜园/浇水:0"),
        ("计划", "浇水计划 (note) 菜园/浇水:0"),
        ("番茄", "浇水计划 (note) 菜园/浇水:0"),
        ("hedge", "Bees (note) b:0"),
        ("#gard", "garden/tree (tag) calendar:1"),
        (" #YE", "year (tag) calendar:3"),
    ],
)
def test_a_name_is_found_as_people_type_it(symbols: Callable[[str], Symbols], query: str, first: str) -> None:
    assert symbols(GARDEN)(query)[0] == first


def test_letters_in_the_wrong_order_and_unknown_words_find_nothing(symbols: Callable[[str], Symbols]) -> None:
    ask = symbols(GARDEN)
    assert ask("gnp") == ask("zzz") == ask("#zzz") == ask("葡萄") == []


def test_a_title_that_is_a_heading_is_one_name(symbols: Callable[[str], Symbols]) -> None:
    assert symbols("=== x.md\n# Only Title\n\nOnly Title\n=== y/only title.md\n# Only Title\n")("only title") == [
        "Only Title (note) x:0",
        "Only Title (note) y/only title:0",
    ]


def test_names_come_before_notes_that_say_it_and_those_once(symbols: Callable[[str], Symbols]) -> None:
    ask = symbols(
        "=== a.md\n# Other\n\nleek leek leek\n\n" + "x\n" * 500 + "leek\n=== b.md\n# On leeks\n=== leek.md\nx\n"
    )
    assert ask("leek") == ["leek (note) leek:0", "On leeks (note) b:0", "Other (note) a:0"]
    assert ask("leek", 2) == ["leek (note) leek:0", "On leeks (note) b:0"]
    assert ask("leek", 1) == ["leek (note) leek:0"]


def test_a_question_that_a_newer_one_follows_is_answered_with_names(
    symbols: Callable[[str], Symbols], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is when the newer one comes; and what reads the index afterwards is not stopped."""
    monkeypatch.setattr("vault_lsp.view.STEPS", 20)
    ask = symbols("=== leek.md\n# Leek\n" + "".join(f"=== n{number}.md\nLeek soup\n" for number in range(20)))
    with ask.vault.view({}, lambda: False) as view:
        whole, names = view.symbols("leek", 10), view.symbols("leek", 10, lambda: True)
        assert (len(whole), len(names)) == (10, 1)
        for looks in itertools.count():
            newer = Newer(looks)
            found = view.symbols("leek", 10, newer)
            assert found == (names if newer.has_come else whole)
            if not newer.has_come:
                break
        assert looks > 20
    with (
        pytest.raises(Cancelled),
        ask.vault.view({}, lambda: True) as view,
    ):
        view.symbols("leek", 10, lambda: True)


def test_without_a_query_the_notes_last_changed(symbols: Callable[[str], Symbols]) -> None:
    ask = symbols(GARDEN)
    recent = ["Fig (note) a/fig:3", "Bees (note) b:0", "calendar (note) calendar:0", "浇水计划 (note) 菜园/浇水:0"]
    assert ask("") == ask("  ") == recent
    assert ask("", 2) == recent[:2]
    ask.buffer("b.md", "\n# Wasps\n")
    ask.buffer("new.md", "# New\n")
    assert ask("") == ["New (note) new:0", recent[0], "Wasps (note) b:1", *recent[2:]]


def test_open_buffers_count_instead_of_their_files(symbols: Callable[[str], Symbols]) -> None:
    ask = symbols(GARDEN)
    ask.buffer("a/fig.md", "# Plum\n## Pitting #stone/fruit\n")
    assert ask("prun") == ["Bees (note) b:0"]
    assert ask("pitting")[0].startswith("Pitting")
    assert ask("plum") == ["Plum (note) a/fig:0"]
    assert ask("ficus") == []
    assert ask("#stone") == ["stone/fruit (tag) a/fig:1"]
    ask.buffer("calendar.md", "no tags\n")
    assert ask("#") == ["stone/fruit (tag) a/fig:1"]


def test_a_dropped_tag_is_still_found_where_another_note_holds_it(symbols: Callable[[str], Symbols]) -> None:
    ask = symbols("=== a.md\n#herb\n=== b.md\n\n#herb\n")
    ask.buffer("a.md", "none\n")
    assert ask("#herb") == ["herb (tag) b:1"]


def test_a_hash_that_begins_no_tag_is_text(symbols: Callable[[str], Symbols]) -> None:
    assert symbols("=== a.md\n# Issue #12 first\n")("#12")[0] == "Issue #12 first (note) a:0"


def test_changes_are_seen_at_the_next_question(symbols: Callable[[str], Symbols]) -> None:
    ask = symbols(GARDEN)
    assert ask("quince") == []
    write(ask.vault.root, {"new.md": "# Quince\n", "b.md": "# Bumble Bees\n"})
    (ask.vault.root / "calendar.md").unlink()
    ask.vault.reconcile()
    assert ask("quince") == ["Quince (note) new:0"]
    assert ask("bumble") == ["Bumble Bees (note) b:0"]
    assert ask("calendar") == []


def test_a_moved_note_is_found_at_its_new_place_alone(symbols: Callable[[str], Symbols]) -> None:
    ask = symbols("=== fig.md\n# Fig\n")
    assert ask("fig") == ["Fig (note) fig:0"]
    (ask.vault.root / "deep").mkdir()
    (ask.vault.root / "fig.md").rename(ask.vault.root / "deep/fig.md")
    ask.vault.reconcile([NotePath("deep"), NotePath("fig.md")])
    assert ask("fig") == ["Fig (note) deep/fig:0"]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(max_size=30), limit=st.integers(1, 5))
def test_any_query_is_answered(symbols: Callable[[str], Symbols], query: str, limit: int) -> None:
    if not hasattr(symbols, "made"):
        symbols.made = symbols(GARDEN)  # type: ignore[attr-defined]
    found = symbols.made(query, limit)  # type: ignore[attr-defined]
    assert len(set(found)) == len(found)
