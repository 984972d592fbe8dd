"""`index`, `status` and `doctor`, which vault a command works on, and errors that scripts can read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

COMMANDS = ["index", "search", "get", "status", "inspect", "links", "backlinks", "eval", "doctor"]


def age(*files: Path) -> None:
    """Lets files look old enough for their time to be trusted."""
    for file in files:
        os.utime(file, (time.time() - 100,) * 2)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_index_counts_what_it_did(shell: Callable[..., Any]) -> None:
    run = shell(**{"a.md": "a\n", "b/c.md": "c\n", "p.png": b"x"})
    assert run("index").out.startswith("2 notes indexed: 2 added, 0 changed, 0 removed (")
    run.write({"a.md": "a new text\n", "d.md": "d\n"})
    (run.root / "b/c.md").unlink()
    assert run("index").out.startswith("2 notes indexed: 1 added, 1 changed, 1 removed (")
    assert run("index").out.startswith("2 notes indexed: 0 added, 0 changed, 0 removed (")
    assert run("index", "--rebuild").out.startswith("2 notes indexed: 2 added, 0 changed, 0 removed (")
    answer = run("index", "--json").json
    assert answer.pop("seconds") >= 0
    assert answer == {
        "schema": 1,
        "vault": str(run.root),
        "notes": 2,
        "added": 0,
        "changed": 0,
        "removed": 0,
        "skipped": [],
        "model": None,
        "embedded": 0,
        "left": 2,
        "why": "embedding.model is none",
    }


def test_index_takes_files_folders_and_what_is_gone(shell: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = shell(**{"a.md": "a\n", "b/c.md": "c\n", "b/d.md": "d\n"})

    def counts(*paths: str) -> tuple[int, int, int]:
        answer = run("index", "--json", *paths).json
        return answer["added"], answer["changed"], answer["removed"]

    assert counts("a.md") == (3, 0, 0)  # the first time takes in all, for links lead anywhere
    run.write({"x.md": "x\n", "y/z.md": "z\n", "w.md": "w\n"})
    assert counts("x.md") == (1, 0, 0)
    assert counts("y/") == (1, 0, 0)
    run.write({"a.md": "other\n", "b/c.md": "other text\n", "b/new.md": "n\n"})
    assert counts(str(run.root / "b")) == (1, 1, 0)
    assert counts("a.md", "./a.md", "a.md") == (0, 1, 0)
    for path in ("b/c.md", "b/d.md"):
        (run.root / path).unlink()
    assert counts("b/c.md") == (0, 0, 1)
    monkeypatch.chdir(run.root / "b")
    assert counts("d.md") == (0, 0, 1)
    assert counts("d.md") == (0, 0, 0)
    run.write({"e.md": "e\n", "b/f.md": "f\n"})
    assert counts(".") == (1, 0, 0)
    assert counts("..") == (2, 0, 0)
    assert run.hits("--area", "b") == ["b/f.md", "b/new.md"]


@pytest.mark.parametrize("path", ["../x.md", "/etc/passwd", ".obsidian/app.json", "", "\0", "x" * 5000, "a/../../x.md"])
def test_index_refuses_what_is_no_part_of_the_vault(shell: Callable[..., Any], path: str) -> None:
    run = shell(**{"a.md": "a\n"})
    assert run("index", "--json", "--", path, code=1).json["error"]["code"] == "not-found"
    assert run("status", "--json").json["notes"] == 0


def test_a_dry_run_lists_what_would_change_and_writes_nothing(shell: Callable[..., Any], tmp_path: Path) -> None:
    run = shell(**{"a.md": "a\n", "b/c.md": "c\n", "same.md": "s\n"})
    assert run("index", "--dry-run").lines == ["added    a.md", "added    b/c.md", "added    same.md"]
    assert not (tmp_path / "index").exists()
    run("index")
    before = snapshot(tmp_path / "index")
    assert run("index", "--dry-run").out == ""  # though the files are too young for their times to be trusted
    run.write({"a.md": "another\n", "z\n.md": "z\n"})
    (run.root / "b/c.md").unlink()
    os.utime(run.root / "same.md")
    assert run("index", "--dry-run").lines == [r"added    z\n.md", "changed  a.md", "removed  b/c.md"]
    assert run("index", "--dry-run", "b").lines == ["removed  b/c.md"]
    assert run("index", "--dry-run", "--json", "a.md").json == {
        "schema": 1,
        "dry_run": True,
        "added": [],
        "changed": ["a.md"],
        "removed": [],
    }
    after = snapshot(tmp_path / "index")
    assert {file: data for file, data in after.items() if file.endswith(".db")} == {
        file: data for file, data in before.items() if file.endswith(".db")
    }


@pytest.mark.parametrize("arguments", [["--rebuild", "a.md"], ["--rebuild", "--dry-run"], ["--no-such-option"]])
def test_index_refuses_options_that_contradict(shell: Callable[..., Any], arguments: list[str]) -> None:
    shell(**{"a.md": "a\n"})("index", *arguments, code=2)


def test_files_that_can_not_be_indexed_are_named_with_the_reason(shell: Callable[..., Any]) -> None:
    run = shell(**{"ok.md": "spade\n", "bin.md": b"\x89PNG\x00", "sub/line\nbreak.md": "中文".encode("gbk") * 9})
    (run.root / "out.md").symlink_to("/etc/passwd")
    for _ in range(2):  # every time, not only the first
        done = run("index")
        assert done.out.startswith("1 notes indexed")
        assert sorted(done.stderr.splitlines()) == [
            "vault-lsp: skipped bin.md: binary (NUL bytes)",
            "vault-lsp: skipped out.md: symbolic link out of the vault",
            r"vault-lsp: skipped sub/line\nbreak.md: not UTF-8 (36 of 36 bytes)",
        ]
    assert run("index", "sub").stderr.count("\n") == 1
    assert {item["path"]: item["reason"] for item in run("index", "--json").json["skipped"]} == {
        "bin.md": "binary (NUL bytes)",
        "out.md": "symbolic link out of the vault",
        "sub/line\nbreak.md": "not UTF-8 (36 of 36 bytes)",
    }
    assert run("search", "spade").stderr == ""  # told once; a search is not the place to repeat it


def test_status_tells_what_is_indexed_and_where(shell: Callable[..., Any], tmp_path: Path) -> None:
    run = shell(**{"a.md": "[[b]] [[c]]\n", "b.md": "x\n", "bin.md": b"\x00", "p.png": b"x"})
    age(*run.root.glob("*.md"))
    run("index")
    run.write({"new.md": "n\n"})
    told = run("status", "--json").json
    assert told["schema"] == 1
    assert told["vault"] == str(run.root)
    assert (told["notes"], told["links"], told["files"], told["pending"]) == (2, 2, 1, 1)
    assert told["skipped"] == {"bin.md": "binary (NUL bytes)"}
    assert told["semantic"] == "off"
    assert Path(told["index"]["path"]).is_relative_to(tmp_path / "index")
    assert told["index"]["bytes"] > 0
    text = run("status").out
    assert "2 indexed, 1 skipped, 1 not up to date" in text
    assert "Skipped  bin.md: binary (NUL bytes)" in text


def test_doctor_finds_the_installation_sound(shell: Callable[..., Any]) -> None:
    run = shell(**{"a.md": "[[b]]\n", "b.md": "x\n"})
    answer = run("doctor", "--verify", "--prune", "--json").json
    assert {check["name"] for check in answer["checks"]} >= {"python", "sqlite", "segmenter", "config", "index"}
    assert all(check["ok"] for check in answer["checks"])
    assert answer["removed"] == []
    assert all(line.startswith("ok ") for line in run("doctor").lines)


def test_a_config_with_mistakes_is_told_and_the_rest_works(shell: Callable[..., Any]) -> None:
    run = shell(**{"a.md": "spade\n", ".vault-lsp/config.yaml": "exclude: [b.md]\nno_such_key: 1\n", "b.md": "spade\n"})
    done = run("search", "--json", "spade")
    assert [hit["path"] for hit in done.json["results"]] == ["a.md"]
    assert "no_such_key" in done.stderr
    assert "config.yaml:2" in done.stderr
    assert run("doctor", "--json", code=1).json["checks"]


# Which vault --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistyped_vault_is_an_error_and_creates_nothing(
    shell: Callable[..., Any], tmp_path: Path, command: str
) -> None:
    run = shell(**{"a.md": "a\n", "q.yaml": "- {query: a, expected_paths: [a.md]}\n"})
    words = {
        **{command: ["a.md"] for command in ("get", "inspect", "links", "backlinks")},
        "search": ["x"],
        "eval": ["q.yaml"],
    }
    before = sorted(tmp_path.rglob("*"))
    for vault in ("no such", str(tmp_path / "none"), "a.md", "", "\0", "x" * 5000, "~nobody-here/x", "new\nline"):
        done = run(command, "--vault", vault, *words.get(command, []), code=1)
        assert done.out == ""
        assert done.stderr.count("\n") == 1
        assert run("--vault", vault, command, *words.get(command, []), code=1).stderr == done.stderr
        if command != "get":
            answer = run(command, "--vault", vault, "--json", *words.get(command, []), code=1)
            assert answer.json["error"]["code"] == "vault-not-found"
    assert sorted(tmp_path.rglob("*")) == before


def test_the_vault_is_named_before_or_after_the_command_or_in_the_environment(
    shell: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shell(**{"a.md": "here\n"})
    for name in ("two", "three"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text(name + "\n")
    two, three = str(tmp_path / "two"), str(tmp_path / "three")
    assert run("get", "a.md").out == "here\n"
    assert run("--vault", two, "get", "a.md").out == "two\n"
    assert run("get", "--vault", two, "a.md").out == "two\n"
    assert run("get", "a.md", "--vault", two).out == "two\n"
    assert run("--vault", two, "get", "a.md", "--vault", three).out == "three\n"
    monkeypatch.setenv("VAULT_LSP_VAULT", three)
    assert run("get", "a.md").out == "three\n"
    assert run("get", "a.md", "--vault", two).out == "two\n"
    monkeypatch.setenv("VAULT_LSP_VAULT", str(tmp_path / "none"))
    assert "no such folder" in run("get", "a.md", code=1).stderr
    monkeypatch.setenv("VAULT_LSP_VAULT", "")
    assert run("get", "a.md").out == "here\n"


def test_a_subfolder_belongs_to_the_vault_around_it(shell: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = shell(**{"a.md": "spade [[b]]\n", "sub/deep/b.md": "spade\n"})
    monkeypatch.chdir(run.root / "sub/deep")
    assert set(run.hits("spade")) == {"a.md", "sub/deep/b.md"}
    assert run("inspect", "--json", "b.md").json["path"] == "sub/deep/b.md"
    assert run("backlinks", "--json", "./b.md").json["path"] == "sub/deep/b.md"
    assert run("links", "--json", "../../a.md").json["path"] == "a.md"


def test_a_working_folder_that_is_gone_is_an_error(shell: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = shell(**{"a.md": "here\n", "gone/x.md": ""})
    monkeypatch.chdir(run.root / "gone")
    for file in (run.root / "gone/x.md", run.root / "gone"):
        file.unlink() if file.is_file() else file.rmdir()
    assert run("status", code=1).stderr.startswith("vault-lsp: the current folder is gone")
    assert run("get", "--vault", str(run.root), "a.md").out == "here\n"


# Errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "name"),
    [
        (["nonsense"], 2, "usage"),
        (["search", "--nonsense", "x"], 2, "usage"),
        (["--log-level", "loud", "status"], 2, "usage"),
        (["inspect"], 2, "usage"),
        (["inspect", "none.md"], 1, "not-found"),
        (["inspect", "p.png"], 1, "not-found"),
        (["links", "../x.md"], 1, "not-found"),
        (["backlinks", ".obsidian"], 1, "not-found"),
        (["get", "a.md"], 2, "usage"),
        (["status", "too", "many"], 2, "usage"),
        (["status", "--vault"], 2, "usage"),
    ],
)
def test_an_error_is_json_for_those_who_asked_for_json(
    shell: Callable[..., Any], arguments: list[str], code: int, name: str
) -> None:
    run = shell(**{"a.md": "a\n", "p.png": b"x"})
    done = (
        run(*arguments[:1], "--json", *arguments[1:], code=code)
        if arguments[0][0] != "-"
        else run(*arguments, "--json", code=code)
    )
    assert done.stderr == ""
    assert done.json["schema"] == 1
    assert done.json["error"]["code"] == name
    assert done.json["error"]["message"]
    if "get" not in arguments:
        plain = run(*arguments, code=code)
        assert plain.out == ""
        assert plain.stderr.splitlines()[-1].startswith("vault-lsp: ")


def test_json_as_a_word_of_the_query_asks_for_nothing(shell: Callable[..., Any]) -> None:
    run = shell(**{"a.md": "the flag --json\n"})
    assert run("search", "--", "--json").lines[0].endswith("a.md:1  a")


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    command=st.sampled_from(["index", "search", "get", "inspect", "links", "backlinks"]),
    word=st.one_of(st.text(), st.binary().map(os.fsdecode), st.text(alphabet="-a.md:/\\~\0\n", max_size=8)),
    options=st.sampled_from([[], ["--json"]]),
)
def test_any_word_is_answered_without_a_traceback(
    shell: Callable[..., Any], command: str, word: str, options: list[str]
) -> None:
    run = shell(**{"a.md": "# A\n\n[[b]]\n", "b.md": "x\n"})
    done = run(command, *options, word, code=None)
    assert done.code in (0, 1, 2)
    if done.code and "--json" in (*options, word):
        assert done.json["error"]["message"]
    elif done.code:
        assert done.out == ""


def test_a_note_with_a_bad_byte_is_indexed_and_named(shell: Callable[..., Any]) -> None:
    run = shell(**{"page.md": b"word " * 60 + b"\xff quince\n"})
    for _ in range(2):
        assert run("index").stderr.splitlines() == ["vault-lsp: page.md: replaced 1 byte that is not UTF-8"]
    assert "page.md" in run("search", "quince").out
