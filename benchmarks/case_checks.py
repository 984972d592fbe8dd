"""What cases ask for in words, beyond their steps: one function each, registered under the id."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from case_steps import Run, brief, definition_step
from client import Client, FailedError, Json, expect, ordinary


class NotRunError(Exception):
    """The machine can't run this case; the text says why."""


Check = Callable[[Run], None]
CHECKS: dict[str, Check] = {}


def case(name: str) -> Callable[[Check], Check]:
    """Register what a case asks for beyond its steps."""

    def register(check: Check) -> Check:
        CHECKS[name] = check
        return check

    return register


def found_only(run: Run, wanted: dict[str, Sequence[str]]) -> None:
    """Query → exactly these notes, in any order."""
    for query, paths in wanted.items():
        found = run.search(query)
        expect(sorted(found) == sorted(paths), f"search {query}: {found}, not {list(paths)}")


def found_among(run: Run, wanted: dict[str, Sequence[str]]) -> None:
    """Query → at least these notes, the first of them first."""
    for query, paths in wanted.items():
        found = run.search(query)
        expect(set(paths) <= set(found), f"search {query}: {found} lacks one of {list(paths)}")


def outline_of(symbols: Iterable[Json]) -> list[str]:
    return [name for item in symbols for name in (item["name"], *outline_of(item.get("children") or []))]


@case("LP-03")
def commented_out(run: Run) -> None:
    found = run.client.references("Target.md", 0, 3)
    expect(sorted(run.client.target(item).line for item in found) == [4, 9], f"references {found}")


@case("LP-04")
def comment_links(run: Run) -> None:
    found = run.client.references("Target.md", 0, 3)
    expect(sorted(run.client.target(item).line for item in found) == [3, 6], f"references {found}")
    expect(not run.broken("a.md"), "a link in a comment is reported")


@case("LP-06")
def escaped_bars(run: Run) -> None:
    links = {link["target"].rstrip("\\"): link for link in run.inspect("a.md")["links"]}
    shown = {name: link["display"] for name, link in links.items() if not link["embed"]}
    expect(set(shown.values()) >= {"three"}, f"displays {shown}")
    expect(all(not link["path"].endswith("\\") for link in links.values()), f"paths {list(links)}")


@case("LP-11")
def long_lines(run: Run) -> None:
    text = (run.vault / "oneline.md").read_text(encoding="utf-8")
    begun = time.monotonic()
    run.client.open("brackets.md")
    definition_step(
        run,
        {"path": "oneline.md", "position": {"line": 0, "character": text.index("[[Target]]") + 3}},
        {"target": "Target.md"},
    )
    expect(time.monotonic() - begun < 10, "the link at the end of the long line takes too long")


@case("RS-06")
def uri_as_on_disk(run: Run) -> None:
    for name in [file.name for file in run.vault.iterdir()]:
        if name != "idx.md":
            answer = run.client.symbols(name.removesuffix(".md"))
            uris = {run.client.path(item["location"]["uri"]) for item in answer}
            expect(name in uris, f"{name!r} is not spelled as on disk: {uris}")


@case("RS-07")
def odd_names(run: Run) -> None:
    line = 0
    text = (run.vault / "idx.md").read_text(encoding="utf-8")
    at = len(text[: text.index("[z](") + 5].encode("utf-16-le")) // 2
    answer = run.client.at("textDocument/definition", "idx.md", line, at)
    answer = answer[0] if isinstance(answer, list) else answer
    uri = answer.get("uri") or answer["targetUri"]
    expect("%23" in uri and "%20" in uri, f"URI {uri} isn't encoded")


@case("RS-10")
def alias_agreement(run: Run) -> None:
    run.client.open("idx.md")
    leads = [bool(run.client.definition("idx.md", 0, at)) for at in (3, 10)]
    expect(leads == [True, True], f"[[AI]] and [[ai]] lead somewhere: {leads}")
    expect("0:0" not in run.broken("idx.md"), "[[AI]] resolves and is reported as broken")


@case("HD-03")
def headings(run: Run) -> None:
    due = [
        "Under one",
        "Two lines",
        "Closed",
        "C#",
        "Esc #",
        "Three spaces",
        "Tab after",
        "In list",
        "In quote",
        "title: A",
    ]
    names = outline_of(run.client.outline("h.md"))
    expect(all(name.strip() for name in names), f"an empty name: {names}")
    named = [name for name in names if name in due]
    expect(named == due, f"outline {names}")
    expect(not {"NoSpace", "Seven", "Four spaces", "comment"} & set(names), f"outline {names}")


@case("TG-01")
def tags(run: Run) -> None:
    due = [
        "ZmedejoGaŠumnik",
        "AccéntsAussi",
        "한국어",
        "标签",
        "тег",
        "inbox/to-read",
        "📝",
        "y1984",
        "a-b_c",
        "done",
        "next",
    ]
    due += ["Work", "work"]
    names = [tag["name"] for tag in run.inspect("t.md")["tags"]]
    expect(names == due, f"tags {names}")


@case("TG-03")
def front_matter_shapes(run: Run) -> None:
    names = {path: [tag["name"] for tag in run.inspect(path)["tags"]] for path in run.case["files"]}
    expect("work" in names["num.md"] and "2024" not in names["num.md"], f"num.md {names['num.md']}")
    expect(names["str.md"] == ["work", "home"], f"str.md {names['str.md']}")
    expect(names["quoted.md"] == ["work", "home/sub"], f"quoted.md {names['quoted.md']}")
    expect(not names["hash.md"] and not names["null.md"], f"{names}")
    expect(run.inspect("num.md")["title"] == "20240425", "the number is not the title's text")
    found_only(run, {"body": ["scalar.md", "list.md"]})
    untagged = {path for _, path in health(run, "--missing-tags")}
    expect({"hash.md", "null.md"} <= untagged, f"missing tags {untagged}")


@case("FM-01")
def malformed_headers(run: Run) -> None:
    for word in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"):
        expect(len(run.search(f"body{word}")) == 1, f"body{word} is not found")
    unreadable = ("tab", "alias", "quote", "wiki", "colon", "at", "ctrl", "backslash")
    for name in unreadable:
        problems = [item for item in run.inspect(f"{name}.md")["problems"] if item["rule"] == "invalid-frontmatter"]
        expect(problems and problems[0]["line"] >= 1, f"{name}.md: no finding")
    expect(not run.inspect("placeholder.md")["problems"], "a placeholder is reported")
    expect(run.inspect("open.md")["headings"], "the heading of an unclosed header is gone")


@case("FM-03")
def header_bounds(run: Run) -> None:
    due = {
        "bom": "BomTitle",
        "crlf": "CrlfTitle",
        "bomcrlf": "H",
        "eof": "EofTitle",
        "space": "SpaceTitle",
        "cr": "CrTitle",
    }
    for name, title in due.items():
        seen = run.inspect(f"{name}.md")
        expect(seen["title"] == title, f"{name}.md: title {seen['title']}")
        expect([tag["name"] for tag in seen["tags"]] == ["x"], f"{name}.md: tags {seen['tags']}")
        # A first heading is the title; the front matter's stays a property.
        expect(any(item["name"] == title for item in run.client.symbols(title)), f"no symbol {title}")
    definition_step(run, {"path": "bom.md", "position": {"line": 4, "character": 2}}, {"target": "crlf.md"})
    lacking = {path for _, path in health(run, "--missing-frontmatter", "--missing-tags")} - {"cr.md"}
    expect(not lacking, f"said to lack front matter or tags: {lacking}")


def health(run: Run, *options: str) -> list[tuple[str, str]]:
    """Rule and path of all findings; the same in two runs, counted rightly, each with its place."""
    first, second = (run.cli("health", "--json", "--fail-on", "never", *options) for _ in range(2))
    expect(first.out == second.out, "two runs differ")
    answer = json.loads(first.out)
    expect(sum(answer["counts"].values()) == len(answer["findings"]), f"counts {answer['counts']}")
    expect(all(item["path"] and item["line"] >= 1 for item in answer["findings"]), "a finding without a place")
    return [(item["rule"], item["path"]) for item in answer["findings"]]


@case("HL-01")
def health_of_bare_notes(run: Run) -> None:
    found = health(run, "--missing-frontmatter", "--missing-tags")
    for path in ("empty.md", "blank.md"):
        expect([rule for rule, at in found if at == path] == ["missing-frontmatter"], f"{path}: {found}")
    untagged = {path for rule, path in found if rule == "missing-tags"}
    expect(untagged == {"tagsnull.md", "tagsempty.md"}, f"missing tags {untagged}")
    isolated = {path for rule, path in health(run) if rule == "isolated-note"}
    expect("self.md" in isolated and "hub.md" not in isolated, f"isolated {isolated}")
    expect(not [rule for rule, path in health(run) if path.startswith("Templates/")], "findings in a template")


@case("FM-06")
def duplicate_keys(run: Run) -> None:
    run.index()
    found_only(run, {"body": ["d.md"]})
    seen = run.inspect("d.md")
    problems = [item for item in seen["problems"] if item["rule"] == "invalid-frontmatter"]
    expect({item["line"] for item in problems} & {4, 5}, f"problems {seen['problems']}")
    agree = (seen["title"], [tag["name"] for tag in seen["tags"]])
    expect(agree in [("first", ["a"]), ("second", ["b"])], f"title and tags {agree}")


@case("PS-03")
def odd_line_ends(run: Run) -> None:
    definition_step(run, {"path": "a.md", "position": {"line": 1, "character": 14}}, {"target": "C.md"})


@case("SY-03")
def buffer_beats_disk(run: Run) -> None:
    client = run.client
    for path in ("a.md", "b.md"):
        client.open(path)

    def broken_until(count: int, when: str) -> None:
        found = client.diagnostics_until("b.md", lambda items: len(items) == count)
        expect(len(found) == count, f"{when}: {brief(found)}")

    broken_until(1, "at first")
    client.replace("a.md", "# A\n\n## New\n")
    definition_step(run, {"path": "b.md", "position": {"line": 0, "character": 3}}, {"target": "a.md", "line": 2})
    # Neighbours of an unsaved text follow when it is saved; asked now, the server may already know.
    (run.vault / "a.md").write_text("# A\n\n## Disk\n", encoding="utf-8")
    client.watched(("a.md", 2))
    client.settle(1.0)
    definition_step(run, {"path": "b.md", "position": {"line": 0, "character": 3}}, {"target": "a.md", "line": 2})
    broken_until(0, "while the buffer has the heading")
    client.close("a.md")
    broken_until(1, "after closing without saving")
    client.replace("b.md", "[[a#Disk]]\n")
    broken_until(0, "with the heading on disk")


@case("SY-04")
def strange_documents(run: Run) -> None:
    client = run.client
    client.open("daily 2.md", "[[a]]")
    definition_step(run, {"path": "daily 2.md", "position": {"line": 0, "character": 3}}, {"target": "a.md"})
    for uri in ("file:///tmp/outside-of-every-vault.md", "untitled:Untitled-1"):
        item = {
            "uri": uri,
            "languageId": "markdown",
            "version": 1,
            "text": "# Own\n\n[[a]] [w](https://example.org/)\n",
        }
        client.notify("textDocument/didOpen", {"textDocument": item})
        document, position = {"uri": uri}, {"line": 2, "character": 3}
        client.request("textDocument/definition", {"textDocument": document, "position": position})
        context = {"includeDeclaration": True}
        client.request("textDocument/references", {"textDocument": document, "position": position, "context": context})
        client.request("textDocument/documentSymbol", {"textDocument": document})
        web = client.request(
            "textDocument/definition", {"textDocument": document, "position": {"line": 2, "character": 8}}
        )
        expect(not web, f"a web link leads to {web}")
    client.notify("textDocument/didSave", {"textDocument": {"uri": client.uri("gone.md")}})
    client.watched(("never seen.md", 3))
    definition_step(run, {"path": "daily 2.md", "position": {"line": 0, "character": 3}}, {"target": "a.md"})


@case("SY-05")
def symbols_follow(run: Run) -> None:
    names = [item["name"] for item in run.client.symbols("two")]
    expect(not names, f"symbols of an empty vault: {names}")


@case("UR-01")
def spellings(run: Run) -> None:
    client = run.client
    path = "a b@1.md"
    text = (run.vault / path).read_text(encoding="utf-8")
    base = Client.file_uri(run.vault)
    opened = f"{base}/a%20b%401.md"
    item = {"uri": opened, "languageId": "markdown", "version": 1, "text": text}
    client.notify("textDocument/didOpen", {"textDocument": item})
    position = {"line": 0, "character": 3}
    for uri in (f"{base}/a%20b@1.md", opened):
        answer = client.request("textDocument/definition", {"textDocument": {"uri": uri}, "position": position})
        expect(answer, f"{uri}: no definition")
    for name in ("%e7%9b%ae%e6%a0%87.md", "%E7%9B%AE%E6%A0%87.md"):
        params = {"textDocument": {"uri": f"{base}/{name}"}, "position": {"line": 0, "character": 2}}
        found = client.request("textDocument/references", {**params, "context": {"includeDeclaration": False}})
        expect(len(found) == 1, f"{name}: {len(found)} references")


@case("ST-01")
def clean_stdout(run: Run) -> None:
    noisy = {"PYTHONWARNINGS": "default", "PYTHONUNBUFFERED": "1"}
    for ends in ("shutdown", "exit"):
        with Client(run.vault, {**run.env, **noisy}, arguments=("--log-level", "debug", "lsp")) as client:
            client.open("a.md")
            client.diagnostics("a.md")
            client.symbols("知识")
            if ends == "shutdown":
                code = client.shutdown()
            else:
                client.notify("exit", None)
                code = client.process.wait(timeout=20)
            expect(code == (0 if ends == "shutdown" else 1), f"exit code {code} after {ends}")
            client.settle(0.5)
            framed(bytes(client.received))


def framed(stream: bytes) -> None:
    """Raise unless the bytes are frames and nothing else."""
    while stream:
        head = re.match(rb"Content-Length: (\d+)\r\n(?:Content-Type: [^\r\n]*\r\n)?\r\n", stream)
        if head is None:
            raise FailedError(f"not a frame: {stream[:80]!r}")
        body = stream[head.end() : head.end() + int(head[1])]
        json.loads(body)
        stream = stream[head.end() + int(head[1]) :]


@case("FS-01")
def not_utf8(run: Run) -> None:
    # Short files: a single bad byte is more than the hundredth that is let through.
    found_only(run, {"alphaword": ["ok.md"], "Title": ["utf16.md"]})
    skipped = json.loads(run.cli("status", "--json").out)["skipped"]
    expect({"bin.md", "nul.md", "cp1252.md", "gbk.md", "badutf8.md"} == set(skipped), f"skipped {skipped}")
    definition_step(run, {"path": "ok.md", "position": {"line": 0, "character": 13}}, {"target": "cp1252.md"})


@case("FS-02")
def ghosts(run: Run) -> None:
    found_only(run, {"alphaword": ["ok.md"], "innerword": ["folder.md/inner.md"]})
    told = run.cli("index")
    status = run.cli("status").out
    if ordinary() or os.geteuid() != 0:
        expect("secret.md" in status, f"the unreadable file is not listed: {status} {told.err}")
        expect("locked" in status, f"the unreadable folder is not listed: {status}")
    stop = threading.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            file = run.vault / f"v_{number % 50}.md"
            file.write_text("vanishing\n", encoding="utf-8")
            file.unlink()
            number += 1

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(10):
            run.index()
    finally:
        stop.set()
        thread.join()


@case("FS-04")
def names_on_disk(run: Run) -> None:
    found_among(
        run,
        {
            "bodythree": ["tab\tname.md"],
            "bodyfour": ["quote\"and'.md"],
            "bodyfive": [" lead.md"],
            "bodysix": ["-dash.md"],
        },
    )
    expect(run.search("bodytwo") == ["new\nline.md"], f"bodytwo {run.search('bodytwo')}")
    expect("bodysix" in run.cli("get", "--", "-dash.md").out, "get -- -dash.md")
    text = run.cli("search", "bodytwo").out
    expect(text.splitlines()[0].count("line.md") == 1, f"the line feed of a name breaks the output: {text!r}")
    odd = run.cli("status").out
    expect("bad" in odd or run.search("bodyone"), f"the undecodable name is lost: {odd}")


@case("FS-05")
def hidden(run: Run) -> None:
    found_only(run, {"uniqword": ["real.md", "build/gen.md"]})
    (run.vault / ".trash/new.md").write_text("uniqword\n", encoding="utf-8")
    run.client.watched((".trash/new.md", 1))
    run.client.settle(0.5)
    found_only(run, {"uniqword": ["real.md", "build/gen.md"]})
    expect(len(run.broken("real.md")) == 2, "a hidden note became a target")


@case("FS-07")
def very_large(run: Run) -> None:
    client = run.client
    client.open("ok.md")
    client.request("textDocument/definition", {"textDocument": {"uri": client.uri("ok.md")}, "position": point0()})
    slow = client.start("textDocument/documentSymbol", {"textDocument": {"uri": client.uri("manyheads.md")}})
    begun = time.monotonic()
    client.at("textDocument/definition", "ok.md", 0, 0)
    expect(time.monotonic() - begun < 2, f"the other request waited {time.monotonic() - begun:.1f} s")
    client.answer(slow, 60)


def point0() -> Json:
    return {"line": 0, "character": 0}


@case("FS-08")
def killed(run: Run) -> None:
    before = {file.name: file.read_bytes() for file in run.vault.glob("*.md")}
    dice = random.Random(8)
    for _ in range(20):
        for note in run.vault.glob("*.md"):
            note.touch()
        process = subprocess.Popen(
            ["vault-lsp", "index", "--rebuild"],
            cwd=run.vault,
            env=run.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(dice.uniform(0.1, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait()
    run.index()
    expect(run.notes() == len(before), f"{run.notes()} notes")
    for number in range(40):
        expect(f"n{number:03}.md" in run.search(f"word{number}"), f"word{number} is lost")
    run.cli("doctor", "--verify")
    expect(before == {file.name: file.read_bytes() for file in run.vault.glob("*.md")}, "a note was written")


@case("DB-02")
def damaged(run: Run) -> None:
    run.index()
    word = "word7"
    expect(run.search(word), f"{word} is not found before any damage")

    def junk(file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[:100] = b"\x5a" * 100
        file.write_bytes(data)

    def hole(file: Path) -> None:
        data = bytearray(file.read_bytes())
        middle = len(data) // 2
        data[middle : middle + 4096] = bytes(4096)
        file.write_bytes(data)

    def folder(file: Path) -> None:
        file.unlink()
        file.mkdir()

    harms: dict[str, Callable[[Path], None]] = {
        "random bytes": junk,
        "empty": lambda file: os.truncate(file, 0),
        "cut off": lambda file: os.truncate(file, file.stat().st_size // 3),
        "hole": hole,
        "folder": folder,
    }
    for name, harm in harms.items():
        file = Path(json.loads(run.cli("status", "--json").out)["index"]["path"])
        for side in file.parent.glob(f"{file.name}-*"):
            side.unlink()
        harm(file)
        done = run.cli("search", "--json", "--", word, code=None)
        found = done.code == 0 and json.loads(done.out)["results"]
        expect(found or done.code != 0, f"{name}: no result and exit code 0")
        run.index()
        expect(run.search(word), f"{name}: {word} is lost after index")


@case("DB-03")
def read_only(run: Run) -> None:
    if not ordinary() and os.geteuid() == 0:
        raise NotRunError("needs an ordinary user")
    run.index()
    folder = Path(json.loads(run.cli("status", "--json").out)["index"]["path"]).parent
    files = [path for top in (folder, run.vault) for path in (top, *top.rglob("*"))]
    for path in files:
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        expect(run.search("alphaword") == ["n.md"], "search on a read-only index")
        expect("alphaword" in run.cli("get", "n.md").out, "get")
        run.cli("status")
        expect(run.client.symbols("n"), "no symbols from a read-only index")
        run.close()
        for path in files:
            if path.is_file() and path.parent == run.vault:
                path.chmod(0o644)
                path.write_text("changedword\n", encoding="utf-8")
        done = run.cli("index", code=None)
        expect(done.code != 0, "index of a read-only folder succeeds")
        expect(done.err.strip().count("\n") == 0, f"more than one line: {done.err}")
    finally:
        for path in files:
            path.chmod(0o755 if path.is_dir() else 0o644)


@case("SR-01")
def no_syntax(run: Run) -> None:
    queries = "multi-agent|AND|C++|C#|foo:bar|don't|20.04|--error-on-warnings|\"unbalanced quoted|#tag|[[Target]]"
    for query in queries.split("|"):
        expect("n.md" in run.search(query), f"search {query!r}: n.md is not found")
    for query in ("%", "_", "*", "100%", "' OR 1=1 --", '"', "^", "\\", "; DROP TABLE notes;--", "zebra OR"):
        found = run.search(query)
        expect("other.md" not in found or "zebra" in query, f"search {query!r}: finds other.md")
        run.client.symbols(query)
    expect(run.search("zebra") == ["other.md"], "the notes are gone")


@case("SR-03")
def chinese(run: Run) -> None:
    words = "适者生存 生存 护城河 财务护城河|悬空引用 悬空 gen-itgc itgc gen 50|用户身份 身份 搜索 bug"
    for path, group in zip(("a.md", "b.md", "c.md"), words.split("|"), strict=True):
        found_only(run, {word: [path] for word in group.split()})
    found_only(run, {"笔记": ["a.md"]})


@case("SR-05")
def kana_and_hangul(run: Run) -> None:
    found_only(
        run,
        {
            "バカ": ["ba.md"],
            "ハカ": ["ha.md"],
            "パーカー": ["pa.md"],
            "ガイド": ["nfd.md"],
            "しりとり": ["jp.md"],
            "끝말잇기": ["kr.md"],
            "게임": ["kr.md"],
            "cafe": ["caf.md"],
            "resume": ["caf.md"],
            "Café": ["caf.md"],
        },
    )


@case("SR-06")
def widths_and_emoji(run: Run) -> None:
    both = ["fw.md", "hw.md"]
    found_among(
        run, {"ABC123": both, "ＡＢＣ１２３": both, "ハンカク": ["fw.md"], "詞典": ["trad.md"], "词典": ["simp.md"]}
    )
    found_among(run, {"🚀": ["emo.md"], "𠮷野家": ["rare.md"]})
    for query in ("🎉", "𪚥", "👨‍👩‍👧"):
        run.search(query)


@case("SC-01")
def path_safety(run: Run) -> None:
    outside = "../outside.md|/etc/passwd|a/../../outside.md|..%2foutside.md|a\\..\\..\\outside.md|C:\\x.md|link.md"
    others = "../vault-private/p.md||.|a|.git/config|.obsidian/app.json|~/x.md|file:///etc/passwd"
    for path in f"{outside}|{others}".split("|"):
        done = run.cli("get", "--", path, code=None)
        expect(done.code != 0, f"get {path!r}: exit code 0")
        expect("SECRET" not in done.out and "root:" not in done.out, f"get {path!r} leaks")
    expect(run.cli("get", "--", "n.md").out == "inside\n", "get n.md")
