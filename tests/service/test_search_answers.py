"""Search as the service answers it: dates, hits for files as they are now, and the ranking of plain expectations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import write
from vault_lsp.search import Filters, Query, SearchResult, parse_date
from vault_lsp.service import Vault

Find = Callable[..., SearchResult]


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Vault]]:
    monkeypatch.setenv("VAULT_LSP_INDEX_DIR", str(tmp_path / "index"))
    opened: list[Vault] = []

    def make(**files: str) -> Vault:
        opened.append(Vault.open(write(tmp_path / "vault", files)))
        opened[-1].reconcile()
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def ask(vault: Vault, text: str, **options: object) -> SearchResult:
    with vault.view() as view:
        return view.search(Query(text, **options))  # type: ignore[arg-type]


def paths(vault: Vault, text: str, **options: object) -> list[str]:
    return [hit.path for hit in ask(vault, text, **options).hits]


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2024-05-06", datetime(2024, 5, 6).astimezone()),
        ("2024-05-06T07:08", datetime(2024, 5, 6, 7, 8).astimezone()),
        ("20240506", datetime(2024, 5, 6).astimezone()),
        (" 2024-05-06 07:08:09.5 ", datetime(2024, 5, 6, 7, 8, 9, 500_000).astimezone()),
        ("2024-05-06T07:08:09Z", datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)),
        ("2024-05-06T07:08+02:00", datetime(2024, 5, 6, 5, 8, tzinfo=UTC)),
        ("1970-01-01T00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
        ("1950-01-01T00:00Z", datetime(1950, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_date_is_local_unless_it_says_otherwise(text: str, when: datetime) -> None:
    assert parse_date(text) == round(when.timestamp() * 1_000_000) * 1000


@pytest.mark.parametrize(("text", "days"), [("0d", 0), ("1d", 1), ("7d", 7), ("3w", 21)])
def test_an_age_is_counted_back_from_now(text: str, days: int) -> None:
    wanted = (datetime.now(UTC) - timedelta(days=days)).timestamp()
    assert abs(parse_date(text) / 1e9 - wanted) < 5


@pytest.mark.parametrize("text", ["", " ", "d", "7", "7 d", "-7d", "7m", "x", "2024-13-01", "2024-02-30", "٧d", "7dd"])
def test_anything_else_is_no_date(text: str) -> None:
    with pytest.raises(ValueError, match="is no date"):
        parse_date(text)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.datetimes().map(datetime.isoformat), st.datetimes().map(lambda at: at.isoformat() + "Z")))
def test_every_date_becomes_a_time_that_the_index_can_hold(text: str) -> None:
    assert -(2**63) <= parse_date(text) < 2**63


def test_a_file_that_is_gone_leaves_its_place_to_the_next(vault: Callable[..., Vault]) -> None:
    made = vault(**{f"{n}.md": f"leek {n}\n" for n in range(5)})
    (made.root / "1.md").unlink()
    assert paths(made, "leek", limit=3) == ["0.md", "2.md", "3.md"]
    filtered = paths(made, "", filters=Filters(area="root"), limit=4)
    assert sorted(filtered) == ["0.md", "2.md", "3.md", "4.md"]


def test_previews_show_the_words_of_the_query_in_the_file_as_it_is(vault: Callable[..., Vault]) -> None:
    made = vault(**{"a.md": "# A\n\nleek soup\n"})
    write(made.root, {"a.md": "new first line\n" * 40 + "here is the leek now\n"})
    (hit,) = ask(made, "leek").hits
    assert "leek" in hit.snippet
    assert (hit.line_start, hit.line_end) == (41, 41)


def test_a_hit_for_a_name_needs_no_line(vault: Callable[..., Vault]) -> None:
    made = vault(**{"leek.md": "", "b.md": "x\n"})
    (hit,) = ask(made, "leek").hits
    assert (hit.path, hit.title, hit.snippet) == ("leek.md", "leek", "")


def test_hits_name_the_headings_above_them(vault: Callable[..., Vault]) -> None:
    filler = "words that fill the section up\n" * 150
    made = vault(**{"a.md": f"# Book\n\n## One\n\n{filler}\n## Two\n\n### Deep\n\nleek\n{filler}"})
    (hit,) = ask(made, "leek").hits
    assert hit.heading.startswith("Book › Two")


def test_explained_scores_add_up(vault: Callable[..., Vault]) -> None:
    made = vault(**{"leek.md": "leek soup\n", "b.md": "leek [[leek]]\n", "c.md": "# On leek\n\nx\n"})
    for hit in ask(made, "leek", explain=True).hits:
        assert hit.channels is not None
        parts = [channel["weight"] * channel["strength"] / (60 + channel["rank"]) for channel in hit.channels.values()]
        assert hit.score == pytest.approx(sum(parts))
        assert parts == pytest.approx([channel["contribution"] for channel in hit.channels.values()])
    assert ask(made, "leek").hits[0].channels is None
    scores = [hit.score for hit in ask(made, "leek").hits]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("query", ["two sums", "Two-Sums", "two sums?", "the two sums"])
def test_numbers_and_punctuation_keep_no_name_from_being_exact(vault: Callable[..., Vault], query: str) -> None:
    noise = {f"n{n}.md": f"# 3{n}. Two Sums of trees {n}\n\ntwo sums two sums\n" for n in range(5)}
    made = vault(**noise, **{"x/0001.md": "# 1. Two Sums\n\nnothing\n", "y/two-sums.md": "# Else\n\nnothing\n"})
    assert set(paths(made, query)[:2]) == {"x/0001.md", "y/two-sums.md"}


def test_a_common_word_as_a_name_is_not_preferred_to_what_is_asked_for(vault: Callable[..., Vault]) -> None:
    about = {f"a{n}.md": f"# Pruning pears {n}\n\nhow to prune the pear tree in winter {n}\n" for n in range(12)}
    made = vault(**about, **{"tree.md": "x\n", "winter.md": "# Winter\n\n" + "cold tree " * 300})
    found = paths(made, "prune pear tree winter", limit=12)
    assert set(found) == set(about)
    assert paths(made, "what is winter")[0] == "winter.md"
    assert paths(made, "tree")[0] == "tree.md"


def test_a_name_inside_a_question_counts_where_the_text_agrees(vault: Callable[..., Vault]) -> None:
    made = vault(
        **{
            "p.md": "# 沈括\n\n沈括出生于杭州，著有梦溪笔谈。\n",
            "q.md": "# 出生\n\n出生 出生 什么时候 出生\n",
            "r.md": "# 时候\n\n什么时候 什么时候\n",
        }
    )
    assert paths(made, "沈括是什么时候出生的？")[0] == "p.md"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    filters=st.builds(
        Filters,
        tags=st.lists(st.sampled_from(["t", "t/u", "v"]), max_size=2).map(tuple),
        area=st.sampled_from([None, "root", "f"]),
        folder=st.sampled_from([None, "f", "f/g/"]),
        path_prefix=st.sampled_from([None, "f/", "a"]),
        kind=st.sampled_from([None, "note"]),
    ),
    limit=st.integers(1, 30),
)
def test_a_filter_never_costs_a_hit(vault: Callable[..., Vault], filters: Filters, limit: int) -> None:
    tags = ["#t", "#t/u", "#v", "#t #v", ""]
    folders = ["", "f/", "f/g/", "h/"]
    made = vault(**{f"{folders[n % 4]}a{n}.md": f"leek {tags[n % 5]} {'pad ' * n}\n" for n in range(40)})

    def fits(path: str, number: int) -> bool:
        held = {tag.lstrip("#") for tag in tags[number % 5].split()}
        below = {parent for tag in held for parent in (tag, tag.partition("/")[0])}
        area = path.partition("/")[0] if "/" in path else "root"
        return (
            set(filters.tags) <= below
            and filters.area in (None, area)
            and path.startswith((filters.folder or "").rstrip("/") + "/" if filters.folder else "")
            and path.startswith(filters.path_prefix or "")
        )

    wanted = {path for n in range(40) if fits(path := f"{folders[n % 4]}a{n}.md", n)}
    found = paths(made, "leek", filters=filters, limit=limit)
    assert set(found) <= wanted
    assert len(found) == min(limit, len(wanted))
    made.close()
