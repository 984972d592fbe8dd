"""Questions are read with every mistake placed; metrics are the known ones; intervals hold what they promise."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_lsp.core.model import NotePath
from vault_lsp.evaluate import (
    METRICS,
    Question,
    QuestionsError,
    evaluate,
    match_paths,
    measure,
    paired_bootstrap,
    read_queries,
)
from vault_lsp.questions import parse_queries


def read(tmp_path: Path, text: str | bytes, name: str = "q.yaml") -> list[Question]:
    file = tmp_path / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_queries(file)


def complaint(tmp_path: Path, text: str | bytes, name: str = "q.yaml") -> str:
    """The error of a file without the path of its folder."""
    with pytest.raises(QuestionsError) as raised:
        read(tmp_path, text, name)
    assert "\n" not in str(raised.value)
    return str(raised.value).replace(f"{tmp_path}/", "")


def asked(relevance: dict[str, float], query: str = "q", tags: Sequence[str] = ()) -> Question:
    return Question(query, {NotePath(path): grade for path, grade in relevance.items()}, tuple(tags))


# Reading ------------------------------------------------------------------------------------------------------------

ONE = Question("how far", {NotePath("a.md"): 1.0, NotePath("b/c.md"): 1.0}, ("en", "far"), 1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.yaml", "- query: how far\n  expected_paths: [a.md, b/c.md]\n  tags: [en, far]\n"),
        ("q.yml", "- {query: 'how far', expected_paths: ['a.md', \"b/c.md\"], tags: [en, far, en]}\n"),
        ("q.yaml", "\ufeff- query: how far\n  relevance:\n    a.md: 1\n    b/c.md: 1.0\n  tags: [en, far]\n"),
        ("q", '- {"query": "how far", "relevance": {"a.md": 1, "b/c.md": 1}, "tags": ["en", "far"]}\r\n'),
        ("q.json", '[{"query": "how far", "expected_paths": ["a.md", "b/c.md"], "tags": ["en", "far"]}]'),
        ("q.JSON", '[{"query":"how far","relevance":{"a.md":1,"b/c.md":1},"tags":["en","far"]}\n]\n'),
        ("q.jsonl", '{"query": "how far", "expected_paths": ["a.md", "b/c.md"], "tags": ["en", "far"]}\n\n'),
        ("q.ndjson", '{"query": "how far", "relevance": {"a.md": 1, "b/c.md": 1}, "tags": ["en", "far"]}'),
    ],
)
def test_every_format_gives_the_same_questions(tmp_path: Path, name: str, text: str) -> None:
    assert read(tmp_path, text, name) == [ONE]


def test_a_text_is_a_list_of_one_and_words_that_look_like_values_stay_words(tmp_path: Path) -> None:
    text = (
        "- query: 2024\n  expected_paths: off.md\n  tags: yes\n- query: '~'\n  relevance: {1.md: 3, 2.md: 0, 3.md: -1}"
    )
    first, second = read(tmp_path, text)
    assert first == Question("2024", {NotePath("off.md"): 1.0}, ("yes",), 1)
    assert second == Question("~", {NotePath("1.md"): 3, NotePath("2.md"): 0, NotePath("3.md"): -1}, (), 4)


@pytest.mark.parametrize(
    ("name", "lines"),
    [("q.yaml", [1, 4, 6]), ("q.json", [2, 3, 5]), ("q.jsonl", [1, 3, 4])],
)
def test_a_question_knows_its_line(tmp_path: Path, name: str, lines: list[int]) -> None:
    texts = {
        "q.yaml": "- query: 甲🌻\n  expected_paths:\n    - a.md\n- expected_paths: [a.md]\n  query: b\n"
        "- {query: c, expected_paths: [a.md]}\n",
        "q.json": '[\n {"query":"甲🌻","expected_paths":["a.md"]},\n {"query":"b",\n"expected_paths":["a.md"]},\n'
        '{"query":"c","expected_paths":["a.md"]}]',
        "q.jsonl": '{"query":"甲🌻","expected_paths":["a.md"]}\n\n{"query":"b","expected_paths":["a.md"]}\n'
        '{"query":"c","expected_paths":["a.md"]}\n',
    }
    assert [question.line for question in read(tmp_path, texts[name], name)] == lines


GOOD = "- {query: a, expected_paths: [a.md]}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "- {expected_paths: [a.md]}\n", "q.yaml:2: a question needs `query`"),
        (GOOD + "- {query: x}\n", "q.yaml:2: a question needs `expected_paths` or `relevance`, one of the two"),
        (
            GOOD + "- query: x\n  expected_paths: [a]\n  relevance: {a: 1}\n",
            "q.yaml:2: a question needs `expected_paths` or `relevance`, one of the two",
        ),
        (GOOD + "- query:\n  expected_paths: [a]\n", "q.yaml:2: “query” must be a text"),
        (GOOD + "- query: [x]\n  expected_paths: [a]\n", "q.yaml:2: “query” must be a text"),
        (GOOD + "- query: ' '\n  expected_paths: [a]\n", "q.yaml:2: “query” must be a text"),
        (GOOD + "- query: x\n  expected_paths:\n", "q.yaml:3: each of “expected_paths” must be a text"),
        (GOOD + "- query: x\n  expected_paths: {a: 1}\n", "q.yaml:3: “expected_paths” must be a list of texts"),
        (
            GOOD + "- query: x\n  expected_paths:\n  - a\n  - [b]\n",
            "q.yaml:5: each of “expected_paths” must be a text",
        ),
        (
            GOOD + "- query: x\n  expected_paths: []\n",
            "q.yaml:2: a question needs at least one note that is relevant",
        ),
        (
            GOOD + "- query: x\n  relevance: {a: 0}\n",
            "q.yaml:2: a question needs at least one note that is relevant",
        ),
        (GOOD + "- query: x\n  relevance: [a]\n", "q.yaml:3: “relevance” must be a mapping of path to grade"),
        (GOOD + "- query: x\n  relevance:\n    a: 1\n    b: high\n", "q.yaml:5: the grade of b must be a number"),
        (GOOD + "- query: x\n  relevance: {a: true}\n", "q.yaml:3: the grade of a must be a number"),
        (GOOD + "- query: x\n  relevance: {a: .inf}\n", "q.yaml:3: the grade of a must be a number"),
        (GOOD + "- query: x\n  relevance: {a: 1, a: 2}\n", "q.yaml:3: a is there twice"),
        (GOOD + "- query: x\n  query: y\n  expected_paths: [a]\n", "q.yaml:3: “query” is there twice"),
        (
            GOOD + "- query: x\n  expected_path: [a]\n  relevance: {a: 1}\n",
            "q.yaml:3: “expected_path” is not known, did you mean “expected_paths”?",
        ),
        (
            GOOD + "- query: x\n  zzz: 1\n  relevance: {a: 1}\n",
            "q.yaml:3: “zzz” is not known: a question has query, expected_paths, relevance, tags",
        ),
        (
            GOOD + "- just words\n",
            "q.yaml:2: a question must be a mapping with `query` and `expected_paths` or `relevance`",
        ),
        ("query: x\n", "q.yaml:1: must be a list of questions"),
        ("", "q.yaml: no question in it"),
        ("[]\n", "q.yaml: no question in it"),
        (GOOD + "- query: @x\n", "q.yaml:2: not YAML: found character that cannot start any token"),
        ("- a\n---\n- b\n", "q.yaml:2: not YAML: there is a second document"),
        ("&a [*a]\n", "q.yaml:1: a question must be a mapping with `query` and `expected_paths` or `relevance`"),
        (b"- \xff\n", "q.yaml: not UTF-8: byte 2 can't be read"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert complaint(tmp_path, text) == message


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("q.json", '[{"query":"x"}]', "q.json:1: a question needs `expected_paths` or `relevance`, one of the two"),
        ("q.json", "{}", "q.json:1: must be a list of questions"),
        ("q.json", '[\n{"query": }]', "q.json:2: not JSON: expecting value"),
        ("q.json", '[\n{"query": "x"', "q.json:2: not JSON: expecting ',' delimiter"),
        (
            "q.json",
            '[\n{"query":"x","expected_paths":["a"]}\n{"query":"x"}]',
            "q.json:3: not JSON: a comma or a closing bracket is missing",
        ),
        ("q.json", '[{"query":"x","expected_paths":["a"]}]\n]', "q.json:2: not JSON: something follows the list"),
        ("q.json", "[" * 100_000, "q.json:1: not JSON: nested too deeply"),
        ("q.json", '[{"query":"x","relevance":{"a":NaN}}]', "q.json:1: the grade of a must be a number"),
        ("q.json", '[{"query":"x","relevance":{"a":1,"a":2}}]', "q.json:1: a is there twice"),
        ("q.jsonl", '{"query":"x","expected_paths":["a"]}\n{"query":', "q.jsonl:2: not JSON: expecting value"),
        (
            "q.jsonl",
            '{"query":"x","expected_paths":["a"]} {"query":"y","expected_paths":["a"]}',
            "q.jsonl:1: not JSON: a line holds one question",
        ),
    ],
)
def test_a_mistake_in_json_is_told_with_its_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    assert complaint(tmp_path, text, name) == message


def test_every_mistake_is_counted_and_the_first_ones_are_listed_in_order(tmp_path: Path) -> None:
    told = complaint(tmp_path, GOOD + "- {query: x}\n" * 7)
    assert [part.split(": ")[0] for part in told.split("; ")] == ["q.yaml:2", "q.yaml:3", "q.yaml:4"]
    assert told.endswith(" (and 4 more)")


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(QuestionsError, match="no such file"):
        read_queries(tmp_path / "none.yaml")
    with pytest.raises(QuestionsError, match="directory"):
        read_queries(tmp_path)


@given(
    text=st.one_of(st.text(), st.text(alphabet='-{}[]:,"&*!|>\n ab1query')),
    suffix=st.sampled_from(["yaml", "json", "jsonl"]),
)
def test_any_text_is_questions_or_one_error(text: str, suffix: str) -> None:
    try:
        questions = parse_queries(text, Path(f"q.{suffix}"))
    except QuestionsError as error:
        told = str(error)
    else:
        told = f"q.{suffix}:{questions[0].line}"
    assert told.startswith(f"q.{suffix}:")


# Paths --------------------------------------------------------------------------------------------------------------


def test_paths_are_taken_as_the_vault_writes_them() -> None:
    paths = [NotePath(path) for path in ("a.md", "b/Cafe\u0301.md", "c.md")]
    question = asked({"./a.md": 1, "a.md": 2, "/b//Caf\u00e9.md": 1, "b/../c.md": 0.5})
    ((matched,), unknown) = match_paths([question], paths)
    assert dict(matched.relevance) == {"a.md": 2, "b/Cafe\u0301.md": 1, "c.md": 0.5}
    assert unknown == []


def test_paths_that_the_vault_does_not_have_are_named_and_their_questions_left_out() -> None:
    paths = [NotePath("notes/garden.md"), NotePath("b.md")]
    questions = [
        Question("one", {NotePath("notes/gardn.md"): 1.0, NotePath("b.md"): 1.0}, (), 4),
        Question("two", {NotePath("../b.md"): 1.0}, (), 9),
        Question("three", {NotePath("b.md"): 0.0, NotePath("zzzzzzzz"): 1.0}, (), 12),
    ]
    matched, unknown = match_paths(questions, paths)
    assert [(question.query, dict(question.relevance)) for question in matched] == [("one", {"b.md": 1.0})]
    assert [tuple(each) for each in unknown] == [
        (4, "notes/gardn.md", "notes/garden.md"),
        (9, "../b.md", "b.md"),
        (12, "zzzzzzzz", None),
    ]


# Metrics ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relevance", "ranking", "wanted"),
    [
        ({"a": 1}, "abc", (1, 1, 1, 1)),
        ({"a": 1}, "bca", (1, 1 / 3, 1 / 2, 0)),
        ({"a": 1}, "bcda", (0, 0, 0, 0)),
        ({"a": 1}, "", (0, 0, 0, 0)),
        ({"a": 1, "b": 1}, "axb", (1, 1, 1.5 / (1 + 1 / math.log2(3)), 1)),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, "abc", (3 / 4, 1, 1, 1)),
        ({"a": 3, "b": 1}, "ba", (1, 1, (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3)), 1)),
        ({"a": 1, "b": 0, "c": -1}, "bca", (1, 1 / 3, 1 / 2, 0)),
        ({"a": 1}, "bba", (1, 1 / 2, 1 / math.log2(3), 0)),
    ],
)
def test_metrics_of_a_ranking(relevance: dict[str, float], ranking: str, wanted: tuple[float, ...]) -> None:
    outcome = measure(asked(relevance), [NotePath(path) for path in ranking], 3)
    assert [getattr(outcome, metric) for metric in METRICS] == pytest.approx(wanted)


@given(
    relevance=st.dictionaries(st.sampled_from("abcdef"), st.integers(-5, 20).map(lambda grade: grade / 4), min_size=1),
    ranking=st.permutations("abcdefgh"),
    k=st.integers(1, 9),
)
def test_metrics_lie_between_nothing_and_all_and_the_best_order_has_all(
    relevance: dict[str, float], ranking: list[str], k: int
) -> None:
    outcome = measure(asked(relevance), [NotePath(path) for path in ranking], k)
    assert all(0 <= getattr(outcome, metric) <= 1 + 1e-9 for metric in METRICS)
    assert (outcome.mrr > 0) == (outcome.recall > 0) == (outcome.ndcg > 0)
    best = sorted(ranking, key=lambda path: -relevance.get(path, 0))
    ideal = measure(asked(relevance), [NotePath(path) for path in best], k)
    assert ideal.ndcg >= outcome.ndcg - 1e-9
    if any(grade > 0 for grade in relevance.values()):
        assert (ideal.ndcg, ideal.mrr, ideal.success) == pytest.approx((1, 1, 1))


def test_a_report_has_means_overall_and_for_each_tag() -> None:
    answers = {"one": "ab", "two": "ba", "three": "bb"}
    questions = [asked({"a": 1}, "one", ["zh"]), asked({"a": 1}, "two", ["en", "zh"]), asked({"a": 1}, "three")]
    seen: list[tuple[int, int]] = []
    calls: list[tuple[str, int]] = []

    def search(query: str, k: int) -> list[NotePath]:
        calls.append((query, k))
        return [NotePath(path) for path in answers[query]]

    report = evaluate(search, questions, 2, progress=lambda done, total: seen.append((done, total)))
    assert calls == [("one", 2), ("one", 2), ("two", 2), ("three", 2)]
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert report.values("mrr") == [1, 0.5, 0]
    assert (report.overall.questions, report.overall.mrr, report.overall.success) == (3, 0.5, pytest.approx(1 / 3))
    assert {tag: (each.questions, each.mrr) for tag, each in report.tags.items()} == {"en": (1, 0.5), "zh": (2, 0.75)}
    assert [outcome.question.query for outcome in report.misses()] == ["three"]
    assert 0 <= report.overall.p50_ms <= report.overall.p95_ms


def test_times_are_those_of_the_questions() -> None:
    pause = {"slow": 0.02, "quick": 0.0}

    def search(query: str, k: int) -> list[NotePath]:
        time.sleep(pause[query])
        return []

    report = evaluate(search, [asked({"a": 1}, "quick")] * 9 + [asked({"a": 1}, "slow")], 3)
    assert report.overall.p50_ms < 15 < report.overall.p95_ms


# Intervals ----------------------------------------------------------------------------------------------------------


def test_an_interval_surrounds_its_mean_and_repeats() -> None:
    chooser = random.Random(3)
    one, two = ([chooser.random() for _ in range(200)] for _ in range(2))
    interval = paired_bootstrap(one, two)
    assert interval.low < interval.mean < interval.high
    assert interval.mean == pytest.approx(sum(one) / 200 - sum(two) / 200)
    assert paired_bootstrap(one, two) == interval
    back = paired_bootstrap(two, one)
    assert (back.mean, back.low, back.high) == pytest.approx((-interval.mean, -interval.high, -interval.low))


def test_equal_modes_differ_by_nothing_and_a_constant_difference_is_certain() -> None:
    assert tuple(paired_bootstrap([0.5, 1, 0], [0.5, 1, 0])) == (0, 0, 0)
    assert tuple(paired_bootstrap([0.75, 1, 0.5], [0.5, 0.75, 0.25])) == (0.25, 0.25, 0.25)


def test_an_interval_is_as_wide_as_the_normal_one_of_many_questions() -> None:
    chooser = random.Random(5)
    values = [float(chooser.random() < 0.3) for _ in range(1000)]
    interval = paired_bootstrap(values, [0.0] * 1000)
    half = 1.96 * math.sqrt(interval.mean * (1 - interval.mean) / 1000)
    assert (interval.high - interval.low) / 2 == pytest.approx(half, rel=0.05)


def test_the_true_difference_lies_in_nearly_all_intervals() -> None:
    chooser = random.Random(7)
    held = 0
    for seed in range(100):
        values = [chooser.gauss(0.1, 1) for _ in range(60)]
        interval = paired_bootstrap(values, [0.0] * 60, resamples=1000, seed=seed)
        held += interval.low <= 0.1 <= interval.high
    assert 87 <= held <= 100


def test_ten_thousand_resamples_of_many_questions_take_under_two_seconds() -> None:
    chooser = random.Random(9)
    values = [chooser.random() for _ in range(3219)]
    started = time.perf_counter()
    paired_bootstrap(values, values[::-1])
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize(("one", "two"), [([], []), ([1.0], [])])
def test_what_is_not_paired_is_refused(one: list[float], two: list[float]) -> None:
    with pytest.raises(ValueError, match="every question"):
        paired_bootstrap(one, two)
    with pytest.raises(ValueError, match="no question"):
        evaluate(lambda query, k: [], [], 10)


def test_a_large_file_is_read_at_once(tmp_path: Path) -> None:
    lines = [json.dumps({"query": f"问题 {n} of many words", "relevance": {f"notes/{n}.md": 1}}) for n in range(3000)]
    started = time.perf_counter()
    assert len(read(tmp_path, "".join(f"- {line}\n" for line in lines))) == 3000
    assert time.perf_counter() - started < 2
