"""What is answered from memory is what the index and the buffers give."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lsp.conftest import Opened
from tests.support import ServerError
from vault_lsp.core.model import NotePath
from vault_lsp.core.text import Point
from vault_lsp.service import Vault

Make = Callable[..., Opened]

LINKS = "[[b]]\n[[b#Two]]\n[[c#^x]]\n[[nick]]\n[[gone]]\n[x](b.md#two)\n[[#Own]]\n[[late]]\n"
TEXTS = {
    "a.md": [LINKS, LINKS + "\n# Own\n", "---\naliases: [nick]\n---\n" + LINKS.replace("[[b]]", "  [[c]]")],
    "b.md": ["# One\n\n## Two\n", "# One\n", "---\naliases: [nick]\n---\n\n\n# Two\n", ""],
    "c.md": ["text ^x\n", "\n\nother ^x\n", "none\n"],
}


def expected(root: Path, buffers: dict[str, str], line: int) -> list[str]:
    """What the index and the buffers say, asked apart from the server."""
    vault = Vault.open(root)
    vault.reconcile()
    overlay = {NotePath(path): vault.parse(NotePath(path), text) for path, text in buffers.items()}
    with vault.view(overlay) as view:
        found = [
            f"{each.path}:{each.place.start.line}" for each in view.definition(NotePath("a.md"), Point(line, 3, 3, 3))
        ]
    vault.close()
    return found


@pytest.mark.parametrize("seed", range(4))
def test_definitions_follow_every_change(
    opened: Make, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = opened("".join(f"=== {path}\n{texts[0]}" for path, texts in TEXTS.items()))
    monkeypatch.setenv("VAULT_LSP_INDEX_DIR", str(tmp_path / "apart"))
    chosen = random.Random(seed)
    buffers = {path: texts[0] for path, texts in TEXTS.items()}
    uris = {path: here.open(path) for path in TEXTS}
    for version in range(2, 14):
        path = chosen.choice(list(TEXTS))
        buffers[path] = chosen.choice(TEXTS[path])
        here.client.change(uris[path], version, {"text": buffers[path]})
        for line in chosen.sample(range(8), 3):
            want = expected(here.root, buffers, line)
            # The first answer brings into memory what the second one is made of.
            assert [here.targets("a.md", line, 3), here.targets("a.md", line, 3)] == [want, want]


def test_a_change_on_disk_reaches_definitions(opened: Make) -> None:
    here = opened("=== a.md\n[[late]]\n[[b#Two]]\n=== b.md\n# Two\n")
    here.open("a.md")
    assert [here.targets("a.md", line, 3) for line in (0, 1, 0, 1)] == [[], ["b.md:0"]] * 2
    (here.root / "late.md").write_text("late\n", "utf-8")
    (here.root / "b.md").write_text("\n\n# Two\n", "utf-8")
    here.client.wait_for(lambda: here.targets("a.md", 0, 3) == ["late.md:0"])
    here.client.wait_for(lambda: here.targets("a.md", 1, 3) == ["b.md:2"])
    (here.root / "late.md").unlink()
    here.client.wait_for(lambda: here.targets("a.md", 0, 3) == [])


def test_a_file_that_is_no_note_answers_alone_also_when_it_was_saved(opened: Make) -> None:
    here = opened("=== n.txt\n[[a]]\n=== a.md\n[[n.txt#any]]\n")
    assert [here.open(path) for path in ("n.txt", "a.md")]
    here.client.notify("textDocument/didSave", {"textDocument": {"uri": here.uri("n.txt")}})
    (here.root / "b.md").write_text("b\n", "utf-8")
    here.client.wait_for(lambda: here.symbols("b"))  # what was saved has been looked at
    assert [here.targets("n.txt", 0, 3) for _ in range(2)] == [[]] * 2
    assert [here.targets("a.md", 0, 3) for _ in range(2)] == [["n.txt:0"]] * 2


@pytest.mark.parametrize("number", [float("inf"), float("nan"), -1, None, "x"])
def test_a_position_that_is_none_is_refused(opened: Make, number: object) -> None:
    here = opened("=== a.md\n[[b]]\n=== b.md\nb\n")
    here.open("a.md")
    assert [here.targets("a.md", 0, 3) for _ in range(2)] == [["b.md:0"]] * 2
    with pytest.raises(ServerError):
        here.ask("definition", "a.md", 0, number)  # type: ignore[arg-type]
