"""`get`: which file a path means, which lines, and that they come out as they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FIVE = b"one\ntwo\nthree\nfour\nfive\n"


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["n.md"], "one two three four five"),
        (["n.md", "-l", "2"], "one two"),
        (["n.md:2"], "two three four five"),
        (["n.md:2", "-l", "1"], "two"),
        (["n.md:4", "-l", "100"], "four five"),
        (["n.md:2-4"], "two three four"),
        (["n.md:5-9"], "five"),
        (["n.md:3", "-C", "0"], "three"),
        (["n.md:3", "-C", "1"], "two three four"),
        (["n.md:1", "-C", "2"], "one two three"),
        (["./n.md:1-1"], "one"),
        (["a/../n.md:1-1"], "one"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_get_prints_the_lines_asked_for(shell: Callable[..., Any], arguments: list[str], lines: str) -> None:
    run = shell(**{"n.md": FIVE, "a/x.md": "x"})
    assert run("get", *arguments).out.split("\n") == [*lines.split(), ""]
    assert run("get", "--", *reversed(arguments)).code == 0 if len(arguments) == 1 else True


@pytest.mark.parametrize(
    ("content", "printed"),
    [
        (b"", b""),
        (b"\n", b"\n"),
        (b"a", b"a\n"),
        (b"a\r\nb\r\n", b"a\nb\n"),
        (b"a\rb\rc", b"a\nb\nc\n"),
        (b"a\n\n\nb", b"a\n\n\nb\n"),
        (b"a\r\r\nb", b"a\n\nb\n"),
        (b"\xef\xbb\xbfa\n", b"a\n"),
        ("a\u2028b\x0bc\x0cd\x85e\u0085\n".encode("utf-8", "replace"), "a\u2028b\x0bc\x0cd\x85e\u0085\n".encode()),
        (b"\x1b[31mred\x07\x00".replace(b"\x00", b"") + b"\n", b"\x1b[31mred\x07\n"),
        ("生存 👨‍👩‍👧 e\u0301".encode(), "生存 👨‍👩‍👧 e\u0301\n".encode()),
        ("生存\r\n好".encode("utf-16"), "生存\n好\n".encode()),
        (b"caf\xe9 " + b"x" * 500, b"caf\xe9 " + b"x" * 500 + b"\n"),
    ],
)
def test_get_prints_a_file_as_it_is_but_for_its_line_ends(
    shell: Callable[..., Any], content: bytes, printed: bytes
) -> None:
    assert shell(**{"n.md": content})("get", "n.md").stdout == printed


@pytest.mark.parametrize("place", ["n.md:0", "n.md:6", "n.md:7-9", "n.md:999999999999999999999999"])
def test_a_line_that_is_not_there_is_an_error_that_tells_how_many_there_are(
    shell: Callable[..., Any], place: str
) -> None:
    done = shell(**{"n.md": FIVE})("get", place, code=1)
    assert done.out == ""
    assert "the file has 5" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["n.md:4-2"], ["n.md:1-2", "-l", "1"], ["n.md:1", "-l", "1", "-C", "1"], ["n.md", "-C", "1"], []]
)
def test_lines_that_mean_nothing_are_wrong_usage(shell: Callable[..., Any], arguments: list[str]) -> None:
    assert shell(**{"n.md": FIVE})("get", *arguments, code=2).out == ""


def test_a_colon_may_belong_to_the_name(shell: Callable[..., Any]) -> None:
    run = shell(**{"talk: part 2.md": "a\nb\n", "n.md:2": "odd\n", "n.md": FIVE, "x:1-2": "p\nq\n"})
    assert run("get", "talk: part 2.md").lines == ["a", "b"]
    assert run("get", "talk: part 2.md:2").lines == ["b"]
    assert run("get", "n.md:2").lines == ["odd"]
    assert run("get", "n.md:2:1").lines == ["odd"]
    assert run("get", "n.md:3", "-l", "1").lines == ["three"]
    assert run("get", "x:1-2").lines == ["p", "q"]


def test_attachments_that_are_text_can_be_read_and_others_not(shell: Callable[..., Any]) -> None:
    run = shell(**{"data.csv": "a,b\n", "p.png": b"\x89PNG\x00\x01", "gbk.md": "中文笔记".encode("gbk")})
    assert run("get", "data.csv").out == "a,b\n"
    for path in ("p.png", "gbk.md"):
        assert run("get", path, code=1).out == ""


@pytest.mark.parametrize(
    "place",
    [
        *("../secret.md", "/etc/passwd", "a/../../secret.md", "..%2fsecret.md", "a\\..\\..\\secret.md", "C:\\x.md"),
        *("out.md", "outdir/secret.md", "../vault-two/secret.md", "\0", "n.md\0", "", ".", "..", "a", "a/", "n.md/"),
        *(
            ".git/config",
            ".obsidian/app.json",
            "a/.hidden.md",
            "node_modules/x.md",
            "~/x.md",
            "~",
            "file:///etc/passwd",
        ),
        *("n", "no such.md", "n.md/x", "n.md/../../secret.md", "//etc/passwd", "dangling.md", "x" * 5000, "a/" * 3000),
        *("../secret.md:1", "out.md:1", "/etc/passwd:1-2", ":", ":1", "\udcff", "\n", "-"),
    ],
)
def test_nothing_outside_hidden_or_absent_is_read(shell: Callable[..., Any], tmp_path: Path, place: str) -> None:
    run = shell(**{"n.md": FIVE, "a/b.md": "x\n", ".git/config": "SECRET", ".obsidian/app.json": "SECRET"})
    run.write({"a/.hidden.md": "SECRET", "node_modules/x.md": "SECRET"})
    for name in ("secret.md", "vault-two/secret.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("SECRET")
    (run.root / "out.md").symlink_to("../secret.md")
    (run.root / "outdir").symlink_to("../vault-two")
    (run.root / "dangling.md").symlink_to("nowhere")
    done = run("get", "--", place, code=1)
    assert done.out == ""
    assert "SECRET" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 1000


def test_a_link_inside_the_vault_and_an_absolute_path_into_it_are_fine(shell: Callable[..., Any]) -> None:
    run = shell(**{"n.md": FIVE})
    (run.root / "in.md").symlink_to("n.md")
    assert run("get", "in.md:1", "-l", "1").out == "one\n"
    assert run("get", str(run.root / "n.md"), "-l", "1").out == "one\n"


def test_in_a_subfolder_paths_count_from_the_root_and_then_from_here(
    shell: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shell(**{"n.md": "root\n", "sub/m.md": "below\n", "sub/n.md": "twin\n"})
    monkeypatch.chdir(run.root / "sub")
    assert run("get", "n.md").out == "root\n"
    assert run("get", "./m.md").out == run("get", "sub/m.md").out == run("get", "m.md:1").out == "below\n"
    assert run("get", "../n.md").out == "root\n"
    assert run("get", "m.md/", code=1).out == ""


def test_get_makes_no_index(shell: Callable[..., Any], tmp_path: Path) -> None:
    shell(**{"n.md": FIVE})("get", "n.md")
    assert not (tmp_path / "index").exists()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.lists(st.sampled_from([b"\r", b"\n", b"x", "é好".encode(), b"\x0c", b"\x1c", "\u2028".encode()])))
def test_lines_put_together_again_are_the_file(shell: Callable[..., Any], content: list[bytes]) -> None:
    data = b"".join(content)
    run = shell(**{"n.md": data})
    unified = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    whole = run("get", "n.md").stdout
    assert whole == (unified if unified.endswith(b"\n") or not unified else unified + b"\n")
    count = whole.count(b"\n")
    assert b"".join(run("get", f"n.md:{n}-{n}").stdout for n in range(1, count + 1)) == whole


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.one_of(st.text(), st.binary().map(os.fsdecode), st.text(alphabet="./\\:~n.md0123-\0", max_size=12)))
def test_any_path_is_answered_or_refused(shell: Callable[..., Any], place: str) -> None:
    done = shell(**{"n.md": FIVE})("get", "--", place, code=None)
    assert done.code in (0, 1, 2)
    assert (done.code == 0) == (done.stderr == "")
