"""`search`: queries are text and never syntax, filters, the shape of answers, and lines that are right on disk."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SYNTAX = {
    "n.md": 'self-watering pots AND C++ C# "quoted" foo:bar can\'t 22.10 50% --fail-on-frost [[Target]] #tag\n',
    "other.md": "plain okapi\n",
}

MANY = {
    "root.md": "---\ntags: [garden/tree, herb]\n---\nfennel root\n",
    "beds/a.md": "#garden fennel\n",
    "beds/deep/b.md": "#garden/tree #herb fennel\n",
    "beds2/c.md": "#gardener fennel\n",
    "日记/d.md": "fennel 茴香\n",
}


@pytest.mark.parametrize(
    "query",
    [
        *("self-watering", "AND", "C++", "C#", "foo:bar", "can't", "22.10", "--fail-on-frost", '"unbalanced quoted'),
        *("pots AND", "NOT pots", "pots*", "(pots", "pots)", "^pots", "NEAR(pots", "{words}:pots", "title:pots"),
        *(
            "-pots",
            "#tag",
            "[[Target]]",
            "`pots`",
            "pots\\",
            "pots\0",
            "'pots' OR 1=1 --",
            "'; DROP TABLE chunks; pots",
        ),
        *("ＰＯＴＳ", "Pöts", "pots " * 400, "pots\ud800".encode("utf-8", "ignore").decode(), "pots\udcff"),
    ],
)
def test_a_query_finds_its_words_whatever_else_is_in_it(shell: Callable[..., Any], query: str) -> None:
    assert shell(**SYNTAX).hits("--", query) == ["n.md"]


@pytest.mark.parametrize(
    "query",
    ['"', '"nowhere', "*", "zz*", "^", "NEAR(", "()", "%", "_", "100%", "\\", "' OR 1=1 --", "-", "--", "。", "?"],
)
def test_a_query_without_words_of_the_vault_finds_nothing(shell: Callable[..., Any], query: str) -> None:
    run = shell(**{"other.md": "plain okapi\n"})
    assert run.hits("--", query) == []
    assert run("search", "--", query).out == ""


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.one_of(st.text(), st.binary().map(os.fsdecode), st.text(alphabet="\"'*()^:-+{}ANDORNEAR \0pots")))
def test_any_text_is_a_query(shell: Callable[..., Any], query: str) -> None:
    done = shell(**SYNTAX)("search", "--no-sync", "--json", "--", query, code=None)
    if query.strip():
        assert done.code == 0
        assert done.json["query"] == query.strip()
    else:
        assert done.json["error"]["code"] == "usage"


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.one_of(st.text(max_size=20), st.binary(max_size=8).map(os.fsdecode)),
    option=st.sampled_from(
        ["--tag", "--area", "--folder", "--path-prefix", "--modified-after", "--modified-before", "--kind", "-k"]
    ),
)
def test_any_value_of_a_filter_is_used_or_refused(shell: Callable[..., Any], option: str, value: str) -> None:
    done = shell(**MANY)("search", "--no-sync", "--json", option, value, "fennel", code=None)
    assert done.code in (0, 2)
    assert ("error" in done.json) == (done.code == 2)


@pytest.mark.parametrize(
    ("query", "path"),
    [
        *(("适者生存", "a.md"), ("护城河", "a.md"), ("财务护城河", "a.md"), ("笔记", "a.md"), ("悬空", "b.md")),
        *(("gen-itgc", "b.md"), ("itgc", "b.md"), ("重跑", "b.md"), ("bug", "c.md"), ("身份", "c.md")),
    ],
)
def test_words_inside_a_chinese_sentence_are_found(shell: Callable[..., Any], query: str, path: str) -> None:
    run = shell(
        **{
            "a.md": "# 笔记\n\n都说适者生存，其实财务护城河更要紧。\n",
            "b.md": "步3 重跑gen-itgc之后悬空引用全部清零\n",
            "c.md": "请搜索这个 bug，与用户身份有关\n",
            "d.md": "今天下雨了\n",
        }
    )
    assert run.hits("--", query)[0] == path


@pytest.mark.parametrize(
    ("query", "found"),
    [
        *(("バラ", {"ba.md"}), ("ハラ", {"ha.md"}), ("ガーデン", {"ga.md"}), ("수박", {"kr.md"}), ("Crème", {"fr.md"})),
        *(("creme", {"fr.md"}), ("DEF456", {"fw.md", "hw.md"}), ("ＤＥＦ４５６", {"fw.md", "hw.md"})),
        *(
            ("ｶﾞｰﾃﾞﾝ", {"ga.md"}),
            ("🌻", {"emo.md"}),
            ("𠮷野家", {"rare.md"}),
            ("詞典", {"trad.md"}),
            ("ほうれん草", set()),
        ),
    ],
)
def test_scripts_meet_in_whatever_form_they_are_written(shell: Callable[..., Any], query: str, found: set[str]) -> None:
    run = shell(
        **{
            "ba.md": "バラの花\n",
            "ha.md": "ハラの話\n",
            "ga.md": "カ\u3099ーテ\u3099ンの道具\n",
            "kr.md": "어제 수박을 먹었다\n",
            "fr.md": "Crème brûlée\n",
            "fw.md": "ＤＥＦ４５６ の型番\n",
            "hw.md": "DEF456 model\n",
            "emo.md": "# 🌻 bloom\n",
            "rare.md": "𠮷野家で\n",
            "trad.md": "一部詞典\n",
        }
    )
    assert set(run.hits("--", query)) == found


def test_names_in_another_normal_form_are_found(shell: Callable[..., Any]) -> None:
    run = shell(**{"Cafe\u0301.md": "x\n", "バカ".encode().decode() + ".md": "y\n", "ノート/カ\u3099ム.md": "z\n"})
    assert run.hits("café") == ["Cafe\u0301.md"]
    assert run.hits("ガム") == ["ノート/カ\u3099ム.md"]
    assert run.hits("--folder", "ノート") == ["ノート/カ\u3099ム.md"]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ("--tag garden", {"root.md", "beds/a.md", "beds/deep/b.md"}),
        ("--tag #garden/tree", {"root.md", "beds/deep/b.md"}),
        ("--tag garden --tag HERB", {"root.md", "beds/deep/b.md"}),
        ("--tag garden --tag nothing", set()),
        ("--area root", {"root.md"}),
        ("--area beds", {"beds/a.md", "beds/deep/b.md"}),
        ("--folder beds", {"beds/a.md", "beds/deep/b.md"}),
        ("--folder beds/", {"beds/a.md", "beds/deep/b.md"}),
        ("--folder ./beds/deep/", {"beds/deep/b.md"}),
        ("--folder bed", set()),
        ("--path-prefix bed", {"beds/a.md", "beds/deep/b.md", "beds2/c.md"}),
        ("--path-prefix beds/", {"beds/a.md", "beds/deep/b.md"}),
        ("--folder 日记", {"日记/d.md"}),
        ("--kind note --area root", {"root.md"}),
        ("--kind text", set()),
        ("--modified-after 2021-01-01 --modified-before 2021-06-01", {"beds/a.md"}),
        ("--modified-after 2021-03-01T12:00 --modified-before 2021-03-02", {"beds/a.md"}),
        ("--modified-before 2021-03-01", set()),
        ("--modified-after 1d", {"root.md", "beds/deep/b.md", "beds2/c.md", "日记/d.md"}),
        ("--modified-before 3w", {"beds/a.md"}),
        ("--modified-after 0001-01-01 --area root", {"root.md"}),
        ("--modified-before 9999-12-31 --area root", {"root.md"}),
        ("--modified-after 999999w --area root", {"root.md"}),
        ("--tag herb --folder beds --modified-after 1d --path-prefix beds/d", {"beds/deep/b.md"}),
    ],
)
@pytest.mark.parametrize("query", ["fennel", ""])
def test_filters_hold_for_every_hit_with_and_without_a_query(
    shell: Callable[..., Any], filters: str, query: str, found: set[str]
) -> None:
    run = shell(**MANY)
    noon = datetime(2021, 3, 1, 12).astimezone().timestamp()
    os.utime(run.root / "beds/a.md", (noon, noon))
    assert set(run.hits(*filters.split(), *query.split())) == found


def test_filters_alone_list_the_notes_last_changed_first(shell: Callable[..., Any]) -> None:
    run = shell(**{f"{name}.md": f"{name} #t\n" for name in "abcde"})
    for age, name in enumerate("cebad"):
        os.utime(run.root / f"{name}.md", (time.time() - 1000 * age,) * 2)
    assert run.hits("--tag", "t") == ["c.md", "e.md", "b.md", "a.md", "d.md"]
    assert run.hits("--tag", "t", "-k", "2") == ["c.md", "e.md"]


@pytest.mark.parametrize(
    "arguments",
    [
        *([], [""], ["  "], ["-k", "0", "x"], ["-k", "many", "x"], ["--kind", "page", "x"], ["--tag", "", "x"]),
        *(["--tag", "#", "x"], ["--modified-after", "yesterday", "x"], ["--modified-before", "", "x"], ["--nothing"]),
        *(["--title-weight", "-1", "x"], ["--title-weight", "nan", "x"], ["-foo"]),
    ],
)
def test_what_can_not_be_asked_is_wrong_usage(shell: Callable[..., Any], arguments: list[str]) -> None:
    run = shell(**SYNTAX)
    done = run("search", *arguments, code=2)
    assert done.out == ""
    assert "vault-lsp: " in done.stderr
    answer = run("search", "--json", *arguments, code=2)
    assert answer.json["error"]["code"] == "usage"
    assert answer.json["error"]["message"]


def test_the_answer_has_the_shape_of_the_contract(shell: Callable[..., Any]) -> None:
    run = shell(
        **{
            "beds/a.md": "---\ntags: [herb, Garden/Tree]\n---\n# Fennel bed\n\n## Water\n\nfennel needs water\n",
            "b.md": "[[a]] [[a]]\n",
            "c.md": "[x](beds/a.md)\n",
        }
    )
    answer = run("search", "--json", "--explain", "fennel", "water").json
    assert {key: answer[key] for key in ("schema", "query", "vault", "semantic", "embedded", "reranked")} == {
        "schema": 1,
        "query": "fennel water",
        "vault": str(run.root),
        "semantic": "off",
        "embedded": 0.0,
        "reranked": False,
    }
    assert answer["took_ms"] > 0
    (hit,) = answer["results"]
    assert hit.pop("score") > 0
    assert hit.pop("channels")["bm25"].items() >= {"rank": 1, "weight": 1.0}.items()
    assert hit.pop("factors") == {}
    assert "fennel needs water" in hit.pop("snippet")
    assert hit == {
        "path": "beds/a.md",
        "title": "Fennel bed",
        "kind": "note",
        "area": "beds",
        "tags": ["Garden/Tree", "herb"],
        "line_start": 4,
        "line_end": 8,
        "line": 8,
        "page_start": None,
        "page_end": None,
        "heading": hit["heading"],
        "indegree": 2,
    }
    assert "channels" not in run("search", "--json", "fennel").json["results"][0]


def test_the_text_form_is_a_line_a_hit_with_an_indented_preview(shell: Callable[..., Any]) -> None:
    run = shell(**{"a.md": "# Title\u3000一\n\n" + "fennel seed \x1b[31m " * 40, "only name fennel.md": ""})
    first, preview, *rest = run("search", "fennel", "seed").lines
    assert re.fullmatch(r"0\.\d{4}  a\.md:3  Title\u3000一", first)
    assert preview.startswith("        ")
    assert "\x1b" not in preview
    assert len(preview.strip()) <= 120
    assert rest == []
    explained = run("search", "--explain", "fennel", "seed").lines
    assert "        bm25: rank 1, weight 1, adds 0.0164" in explained


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("head", ["", "---\ntitle: T\ntags: [x]\n---\n", "\ufeff"])
def test_lines_of_a_hit_are_those_of_the_file(shell: Callable[..., Any], end: str, head: str) -> None:
    body = head + "\n".join(f"## Part {n}\n\n{'filler words here ' * 60}\nplace{n} marker\n" for n in range(30))
    run = shell(**{"long.md": body.replace("\n", end).encode()})
    lines = body.split("\n")
    for n in (0, 13, 29):
        (hit,) = run("search", "--json", f"place{n}").json["results"]
        wanted = next(at for at, line in enumerate(lines, 1) if f"place{n} " in line)
        assert hit["line_start"] <= wanted <= hit["line_end"] <= len(lines)
        assert hit["line_end"] - hit["line_start"] < len(lines) / 2
        assert f"place{n}" in run("get", f"long.md:{hit['line_start']}-{hit['line_end']}").out
        assert f"place{n}" in hit["snippet"]


def test_an_edit_is_seen_without_indexing(shell: Callable[..., Any]) -> None:
    run = shell(**{"a.md": "# A\n\nfennel\n"})
    assert run.hits("fennel") == ["a.md"]
    run.write({"a.md": "new\n" * 300 + "fennel moved\n"})
    (hit,) = run("search", "--json", "fennel").json["results"]
    assert hit["line_start"] <= 301 <= hit["line_end"]
    run.write({"a.md": "nothing of it\n", "b.md": "fennel came here\n"})
    assert run.hits("fennel") == ["b.md"]
    (run.root / "b.md").unlink()
    assert run.hits("fennel") == []


def test_without_sync_lines_still_lie_in_the_file_and_deleted_notes_are_no_hits(shell: Callable[..., Any]) -> None:
    run = shell(**{"a.md": "x\n" * 40 + "fennel\n", "b.md": "fennel\n", "c.md": "fennel\n"})
    assert set(run.hits("fennel")) == {"a.md", "b.md", "c.md"}
    run.write({"a.md": "fennel first\n\nnothing\n", "new.md": "fennel\n"})
    (run.root / "b.md").unlink()
    results = run("search", "--no-sync", "--json", "fennel").json["results"]
    assert {hit["path"]: (hit["line_start"], hit["line_end"]) for hit in results} == {"a.md": (1, 3), "c.md": (1, 1)}
    assert run.hits("--no-sync", "--area", "root", "-k", "3") != []
    assert "b.md" not in run.hits("--no-sync", "--area", "root")


def test_as_many_hits_as_asked_for(shell: Callable[..., Any]) -> None:
    run = shell(**{f"n{number}.md": f"fennel number {number}\n" for number in range(150)})
    for count in (1, 10, 61, 150, 1000):
        assert len(run.hits("-k", str(count), "fennel")) == min(count, 150)
    assert len(run.hits("fennel")) == 10


def test_an_exact_title_or_alias_comes_first(shell: Callable[..., Any]) -> None:
    run = shell(
        **{
            "noise.md": "seed bank " * 50,
            "noise2.md": "# Seed bank rules\n\nseed bank\n",
            "hub.md": "# Seed bank\n\nshort\n",
            "other.md": "---\naliases: [Gene store, 种子库]\n---\nshort\n",
            "noise3.md": "gene store " * 50 + "种子库 " * 50,
        }
    )
    assert run.hits("seed bank")[0] == "hub.md"
    assert run.hits("SEED  bank"[:4] + " bank")[0] == "hub.md"
    assert run.hits("gene store")[0] == "other.md"
    assert run.hits("种子库")[0] == "other.md"


def test_the_weight_of_titles_can_be_set(shell: Callable[..., Any]) -> None:
    run = shell(**{"a.md": "# Chalk soil types\n\nnothing\n", "b.md": "chalk soil " * 20})
    assert run.hits("--title-weight", "100", "chalk soil")[0] == "a.md"
    assert "title" not in json.dumps(
        run("search", "--json", "--explain", "--title-weight", "0", "chalk").json["results"][0]["channels"]
    )


def test_a_note_that_others_link_to_goes_up_among_its_equals(shell: Callable[..., Any]) -> None:
    files = {f"n{number}.md": "# Note\n\nfennel seed\n" for number in range(6)}
    run = shell(**files)
    assert run.hits("fennel seed") == [f"n{number}.md" for number in range(6)]
    run.write({f"src{number}.md": "[[n5]]\n" for number in range(3)})
    found = run.hits("fennel seed")
    assert 1 < found.index("n5.md") < 5
    explained = run("search", "--json", "--explain", "fennel seed").json["results"]
    place = next(hit for hit in explained if hit["path"] == "n5.md")["channels"]["indegree"]
    assert place.items() >= {"rank": 1, "weight": 0.3}.items()


def test_ages_are_counted_from_now(shell: Callable[..., Any]) -> None:
    run = shell(**{"old.md": "x #t\n", "new.md": "x #t\n"})
    week = (datetime.now().astimezone() - timedelta(days=8)).timestamp()
    os.utime(run.root / "old.md", (week, week))
    assert run.hits("--modified-after", "1w") == ["new.md"]
    assert run.hits("--modified-before", "1w") == ["old.md"]
    assert set(run.hits("--modified-after", "9d")) == {"old.md", "new.md"}
