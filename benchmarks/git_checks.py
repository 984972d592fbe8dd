"""Cases about git: repositories with the hooks in them, asked with `--no-sync` for what the hooks have done."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from case_checks import case
from case_steps import Run
from client import expect

_WHO = {f"GIT_{who}_{what}": "a@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(run: Run, *words: str, code: int = 0, **extra: str) -> str:
    done = run.command(["git", *words], **_WHO, **extra)
    expect(done.code == code, f"git {words}: exit code {done.code}: {done.err[-200:]}")
    return done.out + done.err


def commit(run: Run, files: Mapping[str, str], *options: str, **extra: str) -> str:
    for path, text in files.items():
        file = run.vault / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    git(run, "add", "-A")
    return git(run, "commit", "-q", "-m", "c", *options, **extra)


def hooked(run: Run, wanted: Mapping[str, Sequence[str]], vault: Path | None = None) -> None:
    """Within half a minute the index has each word in just these notes, without being asked to look at the disk."""
    where = str(vault or run.vault)
    for word, paths in wanted.items():
        deadline = time.monotonic() + 30
        while True:
            options = ["--no-sync", "--json", "-k", "50", "--mode", "keyword", "--vault", where]
            answer = json.loads(run.cli("search", *options, "--", word).out)
            found = sorted(result["path"] for result in answer["results"])
            if found == sorted(paths):
                break
            expect(time.monotonic() < deadline, f"{word}: {found}, not {paths}")
            time.sleep(0.1)


@case("GT-01")
def environments(run: Run) -> None:
    run.cli("hook", "install")
    tree = run.vault.parent / "wt"
    git(run, "worktree", "add", "-q", str(tree))
    (tree / "new.md").write_text("treeword\n", encoding="utf-8")
    git(run, "-C", str(tree), "add", "-A")
    git(run, "-C", str(tree), "commit", "-qm", "c")
    hooked(run, {"treeword": ["new.md"]}, tree)
    commit(run, {"sub/dir/m.md": "mainword\n"})
    hooked(run, {"mainword": ["sub/dir/m.md"], "treeword": []})
    for folder in (run.vault, tree):
        expect(git(run, "-C", str(folder), "status", "--porcelain") == "", f"{folder}: the status changed")
        expect(not list((run.vault / ".git").rglob("index.lock")), "an index.lock was left")


@case("GT-03")
def names(run: Run) -> None:
    run.cli("hook", "install")
    words = {
        "hookwordone": "中 文.md",
        "hookwordtwo": 'q"uote.md',
        "hookwordthree": "tab\tx.md",
        "hookwordfour": "-dash.md",
        "hookwordfive": "glob[1]*.md",
        "hookwordsix": "sub dir/日本.md",
        "hookwordseven": "new\nline.md",
    }
    git(run, "add", "-A")
    git(run, "commit", "-qm", "1")
    hooked(run, {word: [path] for word, path in words.items()})
    for number, setting in enumerate(("core.quotePath=false", "i18n.logOutputEncoding=GBK", "color.ui=always")):
        git(run, "config", *setting.split("="))
        commit(run, {path: f"again{number} {word}\n" for word, path in words.items()})
        hooked(run, {f"again{number}": list(words.values())})


@case("GT-04")
def events(run: Run) -> None:
    run.cli("hook", "install")
    commit(run, {})
    hooked(run, {"rootword": ["a.md"]})
    commit(run, {"a.md": "amended\n"}, "--amend")
    hooked(run, {"rootword": [], "amended": ["a.md"]})
    main = git(run, "branch", "--show-current").strip()
    for way in ("--no-ff", "--ff-only"):
        word = way.strip("-").replace("-", "")
        git(run, "checkout", "-q", "-b", word)
        commit(run, {f"{word}.md": f"word{word}\n"})
        hooked(run, {f"word{word}": [f"{word}.md"]})
        git(run, "checkout", "-q", main)
        hooked(run, {f"word{word}": []})
        git(run, "merge", "-q", way, word)
        hooked(run, {f"word{word}": [f"{word}.md"]})
    git(run, "checkout", "-q", "-b", "side")
    for number in range(30):
        commit(run, {f"{number}.md": "rebasedword\n"})
    git(run, "checkout", "-q", main)
    commit(run, {"base.md": "baseword\n"})
    git(run, "checkout", "-q", "side")
    git(run, "rebase", "-q", main)
    hooked(run, {"rebasedword": [f"{number}.md" for number in range(30)], "baseword": ["base.md"]})
    git(run, "checkout", "-q", main)
    git(run, "cherry-pick", "side")
    hooked(run, {"rebasedword": ["29.md"]})
    git(run, "revert", "--no-edit", "HEAD")
    hooked(run, {"rebasedword": []})
    git(run, "rm", "-q", "base.md")
    git(run, "mv", "a.md", "moved.md")
    commit(run, {})
    hooked(run, {"baseword": [], "amended": ["moved.md"]})
    git(run, "reset", "-q", "--hard", "HEAD~1")
    expect(run.search("amended") == ["a.md"], "a search after reset --hard")


@case("GT-05")
def undisturbed(run: Run) -> None:
    run.cli("hook", "install")
    for number, extra in enumerate(({"PATH": "/usr/bin:/bin"}, {"HOME": ""}, {"LANG": "C", "LC_ALL": "C"})):
        said = commit(run, {f"n{number}.md": f"---\na: [\n---\nword{number}\n"}, **extra)
        expect(said == "", f"the hook says {said}")
        hooked(run, {f"word{number}": [f"n{number}.md"]})
    folder = Path(json.loads(run.cli("status", "--json").out)["index"]["path"]).parent
    folder.chmod(0o500)
    try:
        expect(commit(run, {"ro.md": "readonlyword\n"}) == "", "the hook speaks where the index can't be written")
    finally:
        folder.chmod(0o700)
    said = commit(run, {f"many/{number}.md": "manyword\n" for number in range(500)})
    expect(said == "", f"the hook says {said}")
    hooked(run, {"readonlyword": ["ro.md"]})
    for number in range(50):
        commit(run, {"loop.md": f"loop{number}\n"})
    hooked(run, {"loop49": ["loop.md"], "loop48": []})
    time.sleep(1)
    left = [file for file in Path("/proc").glob("[0-9]*/environ") if os.fsencode(str(folder)) in _bytes(file)]
    expect(not left, f"processes are left over: {left}")


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
