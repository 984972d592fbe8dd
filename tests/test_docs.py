"""The documents say what is so: commands, options, settings, rules, links, and the findings of the example vault."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from vault_lsp.cli import main
from vault_lsp.config import parse_config
from vault_lsp.core.model import Note, NotePath
from vault_lsp.core.parse import parse
from vault_lsp.core.rules import RULES
from vault_lsp.core.text import Text
from vault_lsp.service import Vault

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [
    *sorted(path.name for path in ROOT.glob("*.md")),
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
    "benchmarks/README.md",
    "examples/vault/README.md",
]


def read(name: str) -> Note:
    return parse(NotePath(name), Text((ROOT / name).read_text(encoding="utf-8")))


def commands() -> dict[str, click.Command]:
    assert isinstance(main, click.Group)
    return dict(main.commands)


def shown_commands() -> Iterator[list[str]]:
    """The words of each `vault-lsp …` line of the README's shell blocks."""
    for block in re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["vault-lsp"]:
                yield words[1:]


def first_column(heading: str) -> list[str]:
    """The code spans in the first column of the README's table with that first heading."""
    table = re.search(rf"^\| {heading} \|.*\n\|[- |]+\n((?:\|.*\n)+)", README, re.MULTILINE)
    assert table is not None
    return [name for row in table[1].splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


@pytest.mark.parametrize("name", list(commands()))
def test_the_readme_shows_every_command(name: str) -> None:
    assert f"vault-lsp {name}" in README


def test_every_shown_command_exists_with_its_options() -> None:
    shown = list(shown_commands())
    assert len(shown) >= len(commands()) - 1
    for words in shown:
        command = commands()[words[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words[1:] if re.match(r"--?[A-Za-z]", word)} <= known, words


@pytest.mark.parametrize("words", list(shown_commands()), ids=" ".join)
def test_every_shown_command_succeeds_on_the_example_vault(words: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vault_lsp", *words],
        cwd=ROOT / "examples/vault",
        env={
            **os.environ,
            "VAULT_LSP_INDEX_DIR": str(tmp_path / "index"),
            "VAULT_LSP_MODEL_DIR": str(tmp_path / "models"),
            "PYTHONPATH": str(ROOT),
            "PYTHONUTF8": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_relative_link_of_a_document_resolves(document: str) -> None:
    file = ROOT / document
    for link in read(document).links:
        target = file.parent / unquote(link.path) if link.path else file
        assert target.exists(), link.target
        if link.subpath:
            there = read(target.resolve().relative_to(ROOT).as_posix())
            assert link.subpath.removeprefix("#") in {heading.slug for heading in there.headings}, link.target


def test_the_documents_are_linked_to_each_other() -> None:
    linked = {link.path for link in read("README.md").links}
    assert {"ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"} <= linked


def test_every_documented_setting_is_known() -> None:
    for key in first_column("key"):
        section, _, name = key.rpartition(".")
        text = f"{section}:\n  {name}: null\n" if section else f"{name}: null\n"
        _, problems = parse_config(text)
        assert not any("not a setting" in problem.message for problem in problems), (key, problems)


def test_an_unknown_setting_would_be_noticed() -> None:
    _, problems = parse_config("links:\n  surprise: null\n")
    assert any("not a setting" in problem.message for problem in problems)


def test_every_rule_is_documented_and_every_documented_rule_exists() -> None:
    assert set(first_column("rule")) == set(RULES)


def test_every_variable_of_the_environment_is_documented() -> None:
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "vault_lsp").rglob("*.py"))
    # The leading underscore is click's own variable for completion, which --help explains.
    read = set(re.findall(r"(?<!_)VAULT_LSP_[A-Z_]+", sources))
    assert read == set(re.findall(r"(?<!_)VAULT_LSP_[A-Z_]+", README))


def test_every_benchmark_is_documented() -> None:
    scripts = {
        file.name for file in (ROOT / "benchmarks").glob("*.py") if "__main__" in file.read_text(encoding="utf-8")
    }
    text = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    assert scripts == set(re.findall(r"^\| `(\w+\.py)", text, re.MULTILINE))


def test_the_example_vault_has_the_findings_that_its_readme_announces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_LSP_INDEX_DIR", str(tmp_path / "index"))
    shutil.copytree(ROOT / "examples/vault", tmp_path / "vault")
    vault = Vault.open(tmp_path / "vault")
    try:
        assert not vault.config_problems
        vault.reconcile()
        paths = [NotePath(file.relative_to(vault.root).as_posix()) for file in sorted(vault.root.rglob("*.md"))]
        with vault.view() as view:
            found = [(finding.rule, finding.path) for path in paths for finding in view.findings(path)]
    finally:
        vault.close()
    assert len(paths) >= 40
    assert sorted(found) == [
        ("ambiguous-link", "journal/2025-03-20.md"),
        ("broken-heading", "methods/Watering.md"),
        ("broken-link", "journal/2025-05-03.md"),
        ("duplicate-name", "beds/Plan.md"),
        ("duplicate-name", "workshop/Plan.md"),
    ]
    announced = read("examples/vault/README.md")
    assert {path for _, path in found} <= {link.path for link in announced.links}
