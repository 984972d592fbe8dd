"""The config file: what it sets, and what it says about its mistakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_lsp.config import (
    CONFIG_FILE,
    UNKNOWN_MODEL,
    Config,
    EmbeddingConfig,
    IndexConfig,
    LinksConfig,
    NotesConfig,
    RerankConfig,
    SearchConfig,
    load_config,
    parse_config,
)
from vault_lsp.core.model import Severity
from vault_lsp.core.rules import RULES, HealthConfig

FULL = """\
$schema: https://example.org/schema.json
exclude: [tmp/, "*.board.md"]
gitignore: true
follow_symlinks: false
notes: {new_folder: inbox, templates: templates/}
text_layers: ["sources/**/*.txt"]
links: {resolve_aliases: false, prefer: markdown}
index: {path: /var/cache/x}
embedding: {model: none}
rerank: {model: models/small, budget_ms: 900, top: 10}
search: {weights: {bm25: 1.0, vector: .5}, areas: {wiki: 1.1, 剪藏: 0.9}, phrase: 1.1, recency: 1.05}
health:
  profile: governed
  graph_in_editor: false
  roles: {wiki: ["wiki/**"]}
  duplicate_topic: 0.9
  archive_after_days: 365
  ignore_key: quiet
  rules: {isolated-note: off, broken-link: warning, alias-link: off}
  exempt: {missing-tags: ["Clippings/**"], broken-link: [a.md]}
  note_type_tags: [日记]
  domain_tags: [java]
  expected_files: [README.md]
"""


def test_a_full_config_is_read_without_complaint() -> None:
    config, problems = parse_config(FULL)
    assert problems == ()
    assert config == Config(
        exclude=("tmp/", "*.board.md"),
        gitignore=True,
        notes=NotesConfig("inbox", "templates/"),
        links=LinksConfig(resolve_aliases=False, prefer="markdown"),
        index=IndexConfig("/var/cache/x"),
        embedding=EmbeddingConfig("none"),
        rerank=RerankConfig("models/small", 900, 10),
        search=SearchConfig({"bm25": 1.0, "vector": 0.5}, {"wiki": 1.1, "剪藏": 0.9}, 1.1, 1.05),
        health=HealthConfig(
            {"isolated-note": Severity.OFF, "broken-link": Severity.WARNING, "alias-link": Severity.OFF},
            {"missing-tags": ("Clippings/**",), "broken-link": ("a.md",)},
            "quiet",
            profile="governed",
            roles={"wiki": ("wiki/**",)},
            duplicate_topic=0.9,
            note_type_tags=("日记",),
            domain_tags=("java",),
            expected_files=("README.md",),
            prefer="markdown",
        ),
    )


@pytest.mark.parametrize(
    "text", ["", "\n", "# nothing\n", "---\n", "null", "links:\nhealth:\n", "health: {rules: ~}", "\ufeff"]
)
def test_an_empty_config_means_the_defaults(text: str) -> None:
    assert parse_config(text) == (Config(), ())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("exclud: [a]", (1, 1, "“exclud” is not a setting, did you mean “exclude”?")),
        ("x: 1", (1, 1, "“x” is not a setting")),
        (
            "links: {resolv_aliases: true}",
            (1, 9, "“links.resolv_aliases” is not a setting, did you mean “resolve_aliases”?"),
        ),
        ("rerank: {top: 0}", (1, 15, "“rerank.top” must be a whole number above 0")),
        ("rerank: {budget_ms: 1.5}", (1, 21, "“rerank.budget_ms” must be a whole number above 0")),
        ("search: {weights: {bm26: 1}}", (1, 20, "“search.weights.bm26” is not a setting, did you mean “bm25”?")),
        ("search: {weights: {title: -1}}", (1, 27, "“search.weights.title” must be a number from 0 to 1000")),
        ("search: {areas: {wiki: 0}}", (1, 24, "“search.areas.wiki” must be a number above 0, 100 at most")),
        ("search: {phrase: '2'}", (1, 18, "“search.phrase” must be a number above 0, 100 at most")),
        ("gitignore: yes", (1, 12, "“gitignore” must be true or false")),
        ("gitignore: 'true'", (1, 12, "“gitignore” must be true or false")),
        ("# é\n\nexclude: tmp", (3, 10, "“exclude” must be a list of texts")),
        ("exclude:\n- a\n- [b]", (3, 3, "“exclude” must be a list of texts")),
        ("links: true", (1, 8, "“links” must be a mapping of keys")),
        ("links:\r\n  prefer: wiki", (2, 11, "“links.prefer” must be one of wikilink, markdown")),
        ("index: {path: []}", (1, 15, "“index.path” must be a text")),
        ("é: 1", (1, 1, "“é” is not a setting")),
        ("$schema: 'a\u2028 b'\nx: 1\n", (2, 1, "“x” is not a setting")),
        (
            "health: {rules: {broken-links: off}}",
            (1, 18, "“health.rules.broken-links” is not a setting, did you mean “broken-link”?"),
        ),
        (
            "health: {rules: {broken-link: loud}}",
            (1, 31, "“health.rules.broken-link” must be one of error, warning, information, hint, off"),
        ),
        (
            "health: {rules: {broken-link: false}}",
            (1, 31, "“health.rules.broken-link” must be one of error, warning, information, hint, off"),
        ),
        ("health: {exempt: {broken-link: a}}", (1, 32, "“health.exempt.broken-link” must be a list of texts")),
        ("health: {profile: strict}", (1, 19, "“health.profile” must be one of default, governed")),
        ("health: {duplicate_topic: 1.2}", (1, 27, "“health.duplicate_topic” must be a number above 0, 1 at most")),
        (
            "health: {roles: {wikis: [a]}}",
            (1, 18, "“health.roles.wikis” is not a setting, did you mean “wiki”?"),
        ),
        (
            "health: {expected_files: [a, ../b]}",
            (1, 26, "“health.expected_files” must be a path inside the vault"),
        ),
        ("notes: {new_folder: /etc}", (1, 21, "“notes.new_folder” must be a path inside the vault")),
        ("notes: {template: x}", (1, 9, "“notes.template” is not a setting, did you mean “templates”?")),
        ("- a", (1, 1, "the file must be a mapping of keys")),
        ("gitignore: false\ngitignore: true", (2, 1, "“gitignore” is set twice, the first counts")),
        ("a: b: c", (1, 5, "not YAML: mapping values are not allowed here")),
        ("a: *x", (1, 4, "not YAML: found undefined alias 'x'")),
        ("a:\n\t- b", (2, 1, "not YAML: found character '\\t' that cannot start any token")),
        ("a: \x07", (1, 4, "not YAML: special characters are not allowed")),
        ("[" * 20000, (1, 1, "not YAML: nested too deeply")),
    ],
)
def test_a_mistake_is_told_with_its_place_and_the_default_stands(text: str, problem: tuple[int, int, str]) -> None:
    config, problems = parse_config(text)
    line, column, message = problem
    assert (message, line, column) in problems
    assert but_the_model(config) == Config()


def but_the_model(config: Config) -> Config:
    """The config with the default model in the place of an unknown one."""
    unknown = config.embedding.model == UNKNOWN_MODEL
    return replace(config, embedding=EmbeddingConfig()) if unknown else config


def test_one_wrong_value_leaves_the_others_in_force() -> None:
    config, problems = parse_config(
        "gitignore: maybe\nexclude: [a]\nhealth: {rules: {broken-link: hint, alias-link: x}}"
    )
    assert config == Config(exclude=("a",), health=HealthConfig({"broken-link": Severity.HINT}))
    assert [problem.line for problem in problems] == [1, 3]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("severity", Severity)
def test_every_rule_takes_every_severity(rule: str, severity: Severity) -> None:
    config, problems = parse_config(f"health:\n  rules:\n    {rule}: {severity}\n")
    assert problems == ()
    assert config.health.rules == {rule: severity}


def test_the_config_lies_in_the_vault(tmp_path: Path) -> None:
    assert load_config(tmp_path) == (Config(), ())
    file = tmp_path / CONFIG_FILE
    file.parent.mkdir()
    file.write_bytes(b"\xef\xbb\xbfgitignore: true\r\n")
    assert load_config(tmp_path) == (Config(gitignore=True), ())


def test_a_file_that_cannot_be_read_is_a_problem_and_no_error(tmp_path: Path) -> None:
    file = tmp_path / CONFIG_FILE
    file.parent.mkdir()
    file.write_bytes(b"gitignore: true\n\xff")
    config, (problem,) = load_config(tmp_path)
    assert config == Config(embedding=EmbeddingConfig(UNKNOWN_MODEL))
    assert problem.message == "not UTF-8: byte 16 can't be read"
    file.unlink()
    file.mkdir()
    config, (problem,) = load_config(tmp_path)
    assert config == Config(embedding=EmbeddingConfig(UNKNOWN_MODEL))
    assert problem.message.startswith("can't be read: ")


KEY = st.sampled_from(
    [*["exclude", "links", "health", "rules", "exempt", "broken-link", "index", "path", "prefer"], "x", "~", "*y"]
)
VALUE = st.sampled_from(["a", "off", "1", "~", "true", "'", "&y b"])
YAML = st.recursive(
    VALUE,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(KEY, inner, max_size=3).map(
            lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items.items()) + "}"
        )
    ),
)


@given(st.text() | YAML)
def test_any_text_is_read_and_every_problem_lies_in_it(text: str) -> None:
    config, problems = parse_config(text)
    assert all(1 <= problem.line <= text.count("\n") + text.count("\r") + 1 for problem in problems)
    assert all(1 <= problem.column <= len(text) + 1 for problem in problems)
    assert but_the_model(config) == Config() or ":" in text


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("", "auto"),
        ("exclude: 3\nnobody: knows\n", "auto"),
        ("embedding:\n", "auto"),
        ("embedding: {}\n", "auto"),
        ("embedding: {model: jina, more: 1}\n", "jina"),
        ("embedding: {model: ji\n", UNKNOWN_MODEL),
        ("embedding: {modle: jina}\n", UNKNOWN_MODEL),
        ("embedding: {model: [jina]}\n", UNKNOWN_MODEL),
        ("embedding: {model: }\n", UNKNOWN_MODEL),
        ("embedding: jina\n", UNKNOWN_MODEL),
        ("embedding jina\n", UNKNOWN_MODEL),
        ("a: b: c\n", UNKNOWN_MODEL),
    ],
)
def test_a_model_that_can_not_be_read_is_not_taken_for_the_default(text: str, model: str) -> None:
    config, problems = parse_config(text)
    assert config.embedding.model == model
    assert bool(problems) == (model == UNKNOWN_MODEL or ": 1}" in text or "nobody" in text)
