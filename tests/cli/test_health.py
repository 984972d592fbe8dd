"""`health`: which findings a vault has, in which form, and what the exit code says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FILES: dict[str, str | bytes] = {
    "hub.md": "---\ntags: [x]\n---\n[[one]] [[gone]] [[one#No]]\n",
    "one.md": "[[hub]]\n",
    "sub/lone.md": "",
}
GOVERNED = """\
links: {prefer: markdown}
health:
  profile: governed
  note_type_tags: [log, 学习]
  domain_tags: [java]
  expected_files: [hub.md, Guide.md]
"""


def rules(done: Any) -> list[tuple[str, str]]:
    return [(finding["rule"], finding["path"]) for finding in done.json["findings"]]


def test_all_findings_are_listed_by_path_and_place(shell: Callable[..., Any]) -> None:
    done = shell(**FILES)("health", "--json", code=1)
    assert rules(done) == [
        ("weakly-connected", "hub.md"),
        ("broken-link", "hub.md"),
        ("broken-heading", "hub.md"),
        ("weakly-connected", "one.md"),
        ("isolated-note", "sub/lone.md"),
    ]
    assert done.json["counts"] == {"error": 1, "warning": 1, "information": 3, "hint": 0}
    assert done.json["findings"][1] == {
        "rule": "broken-link",
        "severity": "error",
        "path": "hub.md",
        "line": 4,
        "column": 9,
        "end_line": 4,
        "end_column": 17,
        "message": "No file “gone” in the vault",
        "related": [],
        "fixable": False,
    }


def test_the_text_has_the_worst_first_and_counts(shell: Callable[..., Any]) -> None:
    run = shell(**FILES)
    lines = run("health", code=1).lines
    assert lines[0] == "hub.md:4:9: error: No file “gone” in the vault [broken-link]"
    assert lines[-1] == "1 error, 1 warning, 3 information"
    assert run("health", "--rule", "alias-link").lines == ["no findings"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 1),
        (("--fail-on", "never"), 0),
        (("--rule", "broken-heading"), 0),
        (("--rule", "broken-heading", "--fail-on", "warning"), 1),
        (("--rule", "isolated-note", "--fail-on", "information"), 1),
        (("one.md",), 0),
        (("sub",), 0),
        (("hub.md",), 1),
        (("--rule", "nothing"), 2),
        (("nowhere.md",), 1),
    ],
)
def test_the_exit_code_tells_whether_it_matters(
    shell: Callable[..., Any], arguments: tuple[str, ...], code: int
) -> None:
    shell(**FILES)("health", *arguments, code=code)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--missing-frontmatter",), {("missing-frontmatter", "one.md"), ("missing-frontmatter", "sub/lone.md")}),
        (("--missing-tags",), {("missing-tags", "one.md"), ("missing-tags", "sub/lone.md")}),
        (("--wikilinks", "one.md"), {("wikilink-in-note", "one.md")}),
        (("--broken-links",), {("broken-link", "hub.md"), ("broken-heading", "hub.md")}),
    ],
)
def test_a_named_rule_runs_whatever_the_config_says(
    shell: Callable[..., Any], arguments: tuple[str, ...], expected: set[tuple[str, str]]
) -> None:
    done = shell(**FILES)("health", "--json", "--fail-on", "never", *arguments)
    assert set(rules(done)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"missing-frontmatter"}),
        ("---\ntitle: t\n---\n", {"missing-tags", "missing-domain-tag"}),
        ("---\ntags:\n---\n#java/spring\n", {"missing-tags"}),
        ("---\ntags: [学习, java]\n---\n", set()),
        ("---\ntags: [log, java, jvaa]\n---\n", {"unregistered-tag"}),
        ("---\ntags: [log, java]\n---\n[[hub]]\n", {"wikilink-in-note"}),
        ("---\ntags: [log, java]\nvault-lsp-ignore: wikilink-in-note\n---\n[[hub]]\n", set()),
    ],
)
def test_a_governed_vault_asks_for_front_matter_and_tags(
    shell: Callable[..., Any], text: str, expected: set[str]
) -> None:
    files = {".vault-lsp/config.yaml": GOVERNED, "hub.md": "[n](n.md)", "n.md": text, "README.md": "", "AGENTS.md": ""}
    done = shell(**files)("health", "--json", "--fail-on", "never")
    governed = {"missing-frontmatter", "missing-tags", "missing-domain-tag", "unregistered-tag", "wikilink-in-note"}
    assert {rule for rule, path in rules(done) if path == "n.md" and rule in governed} == expected
    assert {path for rule, path in rules(done) if rule in governed} <= {"n.md", "hub.md"}
    assert [path for rule, path in rules(done) if rule == "missing-file"] == ["Guide.md"]


def test_two_notes_that_claim_a_name_are_told(shell: Callable[..., Any]) -> None:
    files = {
        "a/fig.md": "---\naliases: [Vino]\n---\n",
        "b/Fig.md": "---\naliases: [vino]\n---\n",
        "README.md": "",
        "b/README.md": "",
    }
    done = shell(**files)("health", "--json", "--rule", "duplicate-name", "--rule", "duplicate-alias")
    assert rules(done) == [
        ("duplicate-name", "a/fig.md"),
        ("duplicate-alias", "a/fig.md"),
        ("duplicate-name", "b/Fig.md"),
        ("duplicate-alias", "b/Fig.md"),
    ]
    assert [finding["line"] for finding in done.json["findings"]] == [1, 2, 1, 2]


def test_sarif_names_rules_places_and_what_stays_when_lines_move(shell: Callable[..., Any]) -> None:
    run = shell(**{"中 文.md": "😀 [[gone]] [[gone]]\n"})
    log = run("health", "--format", "sarif", "--broken-links", code=1).json
    (told,) = log["runs"]
    assert (log["version"], told["columnKind"]) == ("2.1.0", "unicodeCodePoints")
    first, second = told["results"]
    assert told["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == first["ruleId"] == "broken-link"
    assert first["level"] == "error"
    assert first["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "%E4%B8%AD%20%E6%96%87.md", "uriBaseId": "VAULT"},
                "region": {"startLine": 1, "startColumn": 3, "endLine": 1, "endColumn": 11},
            }
        }
    ]
    (run.root / "中 文.md").write_text("new\n\n😀 [[gone]] [[gone]]\n", encoding="utf-8")
    moved = run("health", "--format", "sarif", "--broken-links", code=1).json["runs"][0]["results"]
    assert [each["partialFingerprints"] for each in moved] == [each["partialFingerprints"] for each in (first, second)]
    assert first["partialFingerprints"] != second["partialFingerprints"]


def test_annotations_are_escaped_as_github_reads_them(shell: Callable[..., Any]) -> None:
    run = shell(**{"a, b.md": "[[50% off]]\n"})
    assert run("health", "--format", "github", "--broken-links", code=1).lines == [
        "::error file=a%2C b.md,line=1,endLine=1,title=broken-link,col=1,endColumn=11::No file “50%25 off” in the vault"
    ]


def test_a_baseline_hides_old_findings_and_counts_stale_ones(shell: Callable[..., Any], tmp_path: Path) -> None:
    run, file = shell(**FILES), tmp_path / "baseline.json"
    run("health", "--baseline", str(file), "--update-baseline")
    entries = json.loads(file.read_text("utf-8"))["findings"]
    assert [(each["path"], each["rule"]) for each in entries] == sorted(
        (each["path"], each["rule"]) for each in entries
    )
    assert run("health", "--baseline", str(file)).lines == ["no findings"]
    gone = next(each for each in entries if each["rule"] == "broken-link")
    file.write_text(json.dumps({"version": 1, "findings": [gone, {"fingerprint": "old"}]}), "utf-8")
    done = run("health", "--baseline", str(file), "--json")
    assert done.json["counts"] == {"error": 0, "warning": 1, "information": 3, "hint": 0}


@pytest.mark.parametrize(
    "text", [None, "{\n", "[]", '{"version": 2, "findings": []}', '{"version": 1, "findings": [3]}', "\udcff"]
)
def test_a_bad_baseline_is_an_error(shell: Callable[..., Any], tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "baseline.json"
    if text is not None:
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
    shell(**FILES)("health", "--baseline", str(file), code=1)
