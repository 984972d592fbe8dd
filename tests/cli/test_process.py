"""The command line as a process: pipes, signals, terminals, locales, and where the vault is."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import write
from vault_lsp import __version__

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "vault_lsp"]


def environment(**more: str) -> dict[str, str]:
    """The surroundings of a command: the caller's, with this source tree."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def call(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None, **more: Any) -> Any:
    """Runs a command in a process of its own."""
    options: dict[str, Any] = {"capture_output": True, "timeout": 60, **more}
    return subprocess.run([*COMMAND, *arguments], cwd=cwd, env=environment(**(env or {})), check=False, **options)


def vault(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    write(folder, {".obsidian/app.json": "{}", **files})
    return folder


def start(*arguments: str, cwd: Path, **more: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, *arguments], cwd=cwd, env=environment(), **more)


def test_output_that_nobody_reads_ends_the_command_quietly(tmp_path: Path) -> None:
    root = vault(tmp_path / "v", {"big.md": "line of text\n" * 200_000})
    process = start("get", "big.md", cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(12) == b"line of text"
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(20) == 0
    process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_can_not_be_written_is_one_line_and_a_failure(tmp_path: Path) -> None:
    root = vault(tmp_path / "v", {"n.md": "text\n"})
    with Path("/dev/full").open("wb") as full:
        done = call("get", "n.md", cwd=root, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert re.fullmatch(rb"vault-lsp: the result can't be written: [^\n]+\n", done.stderr)


def test_a_closed_stdout_is_no_crash(tmp_path: Path) -> None:
    root = vault(tmp_path / "v", {"n.md": "text\n"})
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "get", "n.md"],
        cwd=root,
        env=environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"Traceback" not in done.stderr


def test_ctrl_c_is_one_line(tmp_path: Path) -> None:
    root = vault(tmp_path / "v", {f"{n}.md": f"# Note {n}\n\n" + "some words of text\n" * 500 for n in range(450)})
    process = start(
        "index",
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    index = Path(os.environ["VAULT_LSP_INDEX_DIR"])
    deadline = time.monotonic() + 20
    while not any(index.rglob("*.db-wal")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, b"", b"vault-lsp: interrupted\n")
    done = call("index", cwd=root)
    assert done.returncode == 0
    assert done.stdout.startswith(b"450 notes indexed")


def test_long_work_shows_a_bar_on_a_terminal_only(tmp_path: Path, on_terminal: Callable[..., Any]) -> None:
    files = {f"{n}.md": f"# Note {n}\n\n" + "some words of text\n" * 600 for n in range(400)}
    root = vault(tmp_path / "v", files)
    out, shown = on_terminal("index", "--json", cwd=root)
    assert json.loads(out)["added"] == 400
    assert b"Indexing" in shown
    assert b"100%" in shown
    done = call("index", "--rebuild", cwd=root)
    assert b"400 notes indexed: 400 added" in done.stdout
    assert done.stderr == b""


def test_quick_work_shows_no_bar(tmp_path: Path, on_terminal: Callable[..., Any]) -> None:
    out, shown = on_terminal("search", "spade", cwd=vault(tmp_path / "v", {"n.md": "a spade\n"}))
    assert b"n.md" in out
    assert shown == b""


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "latin-1"},
    ],
    ids=["C", "POSIX"],
)
def test_the_locale_changes_nothing(tmp_path: Path, env: dict[str, str]) -> None:
    root = vault(tmp_path / "v", {"笔记/生存.md": "# 生存之道\n\n适者生存 [[计划]]\n", "计划.md": "é [[生存]]\n"})
    indexed = call("index", "--json", cwd=root, env=env)
    assert json.loads(indexed.stdout)["skipped"] == []
    found = call("search", "--json", "适者", cwd=root, env=env)
    assert [hit["path"] for hit in json.loads(found.stdout)["results"]] == ["笔记/生存.md"]
    assert call("get", "计划.md", cwd=root, env=env).stdout.decode() == "é [[生存]]\n"
    assert "计划.md:1:3  生存" in call("backlinks", "笔记/生存.md", cwd=root, env=env).stdout.decode()


def test_names_that_are_not_utf_8_are_told_and_disturb_nothing(tmp_path: Path) -> None:
    root = vault(tmp_path / "v", {"n.md": "spade\n"})
    Path(os.fsdecode(os.fsencode(root) + b"/gr\xfcn.md")).write_text("spade\n")
    done = call("index", cwd=root)
    assert done.returncode == 0
    assert done.stdout.startswith(b"1 notes indexed")
    assert rb"skipped gr\xfcn.md: the name is not valid UTF-8" in done.stderr


@pytest.mark.parametrize("arguments", [["-h"], ["--help"], ["search", "-h"], ["lsp", "--help"], ["--version"]])
def test_help_and_version_need_no_vault(tmp_path: Path, arguments: list[str]) -> None:
    done = call(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (b"Usage: vault-lsp" in done.stdout) or done.stdout.decode().strip().endswith(__version__)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "words", "index", "wanted"),
    [
        ("bash", "vault-lsp sea", "1", "search"),
        ("bash", "vault-lsp search --modi", "2", "--modified-after"),
        ("zsh", "vault-lsp search --kind n", "3", "note"),
        ("fish", "vault-lsp ba", "", "backlinks"),
        ("bash", "vault-lsp get no", "2", "file"),
        ("bash", "vault-lsp search --mode sem", "3", "semantic"),
        ("zsh", "vault-lsp model re", "2", "remove"),
        ("bash", "vault-lsp model fetch multi", "3", "multilingual-e5-small"),
        ("bash", "vault-lsp eval que", "2", "file"),
    ],
)
def test_the_shell_completes(tmp_path: Path, kind: str, words: str, index: str, wanted: str) -> None:
    typed = {"COMP_WORDS": words, "COMP_CWORD": index or words.rsplit(maxsplit=1)[-1]}
    done = call(cwd=tmp_path, env={"_VAULT_LSP_COMPLETE": f"{kind}_complete", **typed})
    assert done.stderr == b""
    assert wanted in done.stdout.decode()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_completion_script_is_made(tmp_path: Path) -> None:
    done = call(cwd=tmp_path, env={"_VAULT_LSP_COMPLETE": "bash_source"})
    assert b"complete -o nosort -F _vault_lsp_completion vault-lsp" in done.stdout
    assert "_VAULT_LSP_COMPLETE=bash_source" in call("--help", cwd=tmp_path).stdout.decode()


def without_power_over_files() -> None:
    """In a child before it becomes the command: lets permissions hold for the super-user too."""
    drop_from_bounding_set, override_permissions = 24, 1
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(drop_from_bounding_set, override_permissions, 0, 0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="needs permissions as Linux has them")
def test_an_index_that_can_not_be_written_still_answers(shell: Callable[..., Any]) -> None:
    run = shell(**{"n.md": "spade\n"})
    assert run.hits("spade") == ["n.md"]
    run.write({"new.md": "spade\n"})
    folder = Path(os.environ["VAULT_LSP_INDEX_DIR"])
    for each in [*folder.rglob("*"), folder]:
        each.chmod(0o555 if each.is_dir() else 0o444)
    try:
        done = call("search", "--json", "spade", cwd=run.root, preexec_fn=without_power_over_files)
        indexed = call("index", "--json", cwd=run.root, preexec_fn=without_power_over_files)
    finally:
        for each in [folder, *folder.rglob("*")]:
            each.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert [hit["path"] for hit in json.loads(done.stdout)["results"]] == ["n.md"]
    assert done.stderr.count(b"\n") == 1
    assert b"may be out of date" in done.stderr
    assert indexed.returncode == 1
    assert json.loads(indexed.stdout)["error"]["code"] == "index-read-only"
    assert indexed.stderr == b""
