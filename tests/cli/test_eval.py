"""`eval`: what is measured is what `search` finds; questions that can't be answered are told, never counted."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_models import tiny_embedder

NOTES = {
    "a.md": "an apple\n",
    "b.md": "banana banana banana\n",
    "deep/c.md": "one banana and a good many other words that have nothing to do with it\n",
}

QUERIES = """\
- query: apple
  expected_paths: [a.md]
  tags: [fruit, sure]
- query: banana
  relevance: {deep/c.md: 1}
  tags: [fruit]
- query: cherry
  expected_paths: [a.md, b.md]
"""


def scores(report: dict[str, Any]) -> tuple[float, ...]:
    return tuple(report[metric] for metric in ("recall", "mrr", "ndcg", "success"))


def test_the_measures_are_those_of_the_search(shell: Callable[..., Any]) -> None:
    run = shell(**NOTES, **{"q.yaml": QUERIES})
    assert run.hits("banana") == ["b.md", "deep/c.md"]
    answer = run("eval", "q.yaml", "--json").json
    assert {key: answer[key] for key in ("schema", "vault", "questions", "left_out", "k", "semantic", "embedded")} == {
        "schema": 1,
        "vault": str(run.root),
        "questions": 3,
        "left_out": 0,
        "k": 10,
        "semantic": "off",
        "embedded": 0.0,
    }
    assert answer["differences"] == []
    assert list(answer["modes"]) == ["keyword"]
    report = answer["modes"]["keyword"]
    assert scores(report) == pytest.approx((2 / 3, 0.5, (1 + 0.6309) / 3, 1 / 3), abs=1e-4)
    assert {tag: (each["questions"], each["mrr"]) for tag, each in report["tags"].items()} == {
        "fruit": (2, 0.75),
        "sure": (1, 1.0),
    }
    assert 0 < report["latency_ms"]["p50"] <= report["latency_ms"]["p95"]
    assert "misses" not in report


def test_only_so_many_results_count(shell: Callable[..., Any]) -> None:
    run = shell(**NOTES, **{"q.yaml": QUERIES})
    assert run("eval", "-k", "1", "--json", "q.yaml").json["modes"]["keyword"]["mrr"] == pytest.approx(1 / 3, abs=1e-4)


def test_the_text_form_is_a_table_with_a_row_for_each_mode_and_tag(shell: Callable[..., Any]) -> None:
    run = shell(**NOTES, **{"q.yaml": QUERIES.replace("sure", "水果")})
    done = run("eval", "q.yaml")
    assert done.stderr == ""
    head, *rows = done.lines
    assert head.split() == ["questions", "recall@10", "MRR@10", "nDCG@10", "success@1", "p50", "ms", "p95", "ms"]
    assert [row.split()[:4] for row in rows] == [
        ["keyword", "3", "0.667", "0.500"],
        ["fruit", "2", "1.000", "0.750"],
        ["水果", "1", "1.000", "1.000"],
    ]


def test_misses_and_ranks_are_listed_with_their_lines(shell: Callable[..., Any]) -> None:
    run = shell(**NOTES, **{"q.yaml": QUERIES.replace("cherry", "cherry banana\\x1b").replace("b.md", "a.md")})
    lines = run("eval", "q.yaml", "-k", "1", "--misses", "--verbose").lines
    assert "q.yaml:1  keyword 1  apple" in lines
    assert "q.yaml:4  keyword -  banana" in lines
    at = lines.index("2 of 3 questions missed by keyword")
    assert lines[at + 1 :] == [
        "q.yaml:4  banana",
        "        expected deep/c.md",
        "        found    b.md",
        "q.yaml:7  cherry banana\\x1b",
        "        expected a.md",
        "        found    b.md",
    ]
    report = run("eval", "q.yaml", "-k", "1", "--misses", "--verbose", "--json").json["modes"]["keyword"]
    assert [(miss["line"], miss["found"]) for miss in report["misses"]] == [(4, ["b.md"]), (7, ["b.md"])]
    assert [each["mrr"] for each in report["each"]] == [1, 0, 0]


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (["--part", "even"], ["q0", "q2", "q4", "q6"]),
        (["--part", "odd"], ["q1", "q3", "q5"]),
        (["--limit", "3"], ["q0", "q2", "q4"]),
        (["--limit", "99"], [f"q{n}" for n in range(7)]),
        (["--part", "odd", "--limit", "2"], ["q1", "q3"]),
    ],
)
def test_a_part_of_the_questions_can_be_asked(shell: Callable[..., Any], options: list[str], asked: list[str]) -> None:
    queries = "".join(f"- {{query: q{n}, expected_paths: [a.md]}}\n" for n in range(7))
    report = shell(**NOTES, **{"q.yaml": queries})("eval", "q.yaml", "--verbose", "--json", *options).json
    assert [each["query"] for each in report["modes"]["keyword"]["each"]] == asked


def test_paths_that_are_not_in_the_vault_are_told_and_not_counted(shell: Callable[..., Any]) -> None:
    more = "- query: apple\n  expected_paths: [aa.md]\n- query: apple\n  expected_paths: [./a.md, gone.md]\n"
    run = shell(**NOTES, **{"q.yaml": QUERIES + more})
    done = run("eval", "q.yaml", "--json")
    assert done.stderr.splitlines() == [
        "vault-lsp: q.yaml:9: not in the vault: aa.md, did you mean a.md?",
        "vault-lsp: q.yaml:11: not in the vault: gone.md",
        "vault-lsp: 1 of 5 questions are left out: the vault has no note they expect",
    ]
    assert (done.json["questions"], done.json["left_out"]) == (4, 1)
    assert done.json["modes"]["keyword"]["success"] == 0.5


def test_a_vault_that_answers_nothing_is_an_error(shell: Callable[..., Any]) -> None:
    run = shell(**NOTES, **{"q.yaml": "".join(f"- {{query: x, expected_paths: [no{n}.md]}}\n" for n in range(30))})
    done = run("eval", "q.yaml", code=1)
    assert len(done.stderr.splitlines()) == 22
    assert done.stderr.splitlines()[-1] == "vault-lsp: q.yaml: the vault has no note that a question expects"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- query: x\n", "q.yaml:1: a question needs `expected_paths` or `relevance`, one of the two"),
        ("", "q.yaml: no question in it"),
        (None, "none.yaml: no such file or directory"),
    ],
)
def test_a_file_with_mistakes_is_an_error_with_file_and_line(
    shell: Callable[..., Any], text: str | None, message: str
) -> None:
    run = shell(**NOTES, **({} if text is None else {"q.yaml": text}))
    name = "none.yaml" if text is None else "q.yaml"
    assert run("eval", name, code=1).stderr == f"vault-lsp: {message}\n"
    assert run("eval", "--json", name, code=1).json["error"] == {"code": "questions", "message": message}


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
def test_a_mode_without_vectors_is_refused(shell: Callable[..., Any], mode: str) -> None:
    run = shell(**NOTES, **{"q.yaml": QUERIES})
    assert run("eval", "q.yaml", "--json", "--mode", mode, code=1).json["error"]["code"] == "model-unavailable"


@pytest.mark.parametrize("options", [[], ["-k", "0", "q"], ["--mode", "magic", "q"], ["--part", "third", "q"]])
def test_wrong_usage_is_told(shell: Callable[..., Any], options: list[str]) -> None:
    assert shell(**NOTES)("eval", "--json", *options, code=2).json["error"]["code"] == "usage"


def test_modes_are_compared_where_there_are_vectors(
    shell: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VAULT_LSP_EMBEDDING")
    model = tiny_embedder(tmp_path / "tiny")
    run = shell(**NOTES, **{"q.yaml": QUERIES, ".vault-lsp/config.yaml": f"embedding: {{model: {model}}}\n"})
    run("index")
    answer = run("eval", "q.yaml", "--json").json
    assert answer["semantic"] == "on"
    assert list(answer["modes"]) == ["hybrid", "keyword", "semantic"]
    assert answer["modes"]["semantic"]["recall"] == 1  # three notes, ten results
    assert [(each["metric"], each["mode"]) for each in answer["differences"]] == [
        (metric, "hybrid") for metric in ("recall", "mrr", "ndcg", "success")
    ]
    for each in answer["differences"]:
        hybrid, other = (answer["modes"][mode][each["metric"]] for mode in ("hybrid", each["against"]))
        assert each["mean"] == pytest.approx(hybrid - other, abs=2e-4)
        assert each["low"] <= each["mean"] <= each["high"]
        assert other == max(answer["modes"][mode][each["metric"]] for mode in ("keyword", "semantic"))
    text = run("eval", "q.yaml").out
    assert re.search(
        r"^hybrid - (keyword|semantic) +MRR@10 +[+-]0\.\d{4} +[+-]\d\.\d{4} to [+-]\d\.\d{4}$", text, re.MULTILINE
    )
    assert list(run("eval", "q.yaml", "--mode", "semantic", "--json").json["modes"]) == ["semantic"]


def test_questions_may_lie_outside_the_vault_and_are_found_from_the_current_folder(
    shell: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shell(**NOTES)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/q.jsonl").write_text('{"query": "apple", "expected_paths": ["a.md"]}\n')
    monkeypatch.chdir(tmp_path / "elsewhere")
    vault = os.fspath(run.root)
    assert run("eval", "--vault", vault, "q.jsonl", "--json").json["modes"]["keyword"]["mrr"] == 1
