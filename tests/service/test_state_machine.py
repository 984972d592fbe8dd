"""Whatever happens to a vault and its index, after a full reconcile the index equals one made afresh."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from vault_lsp.core.links import Names, resolve
from vault_lsp.core.model import Found, NotePath
from vault_lsp.service import Vault
from vault_lsp.store import notes

#: Memory where there is some: an index that is made and thrown away needs no disk.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

FOLDERS = ("", "a/", "A/", "a/b/", "c.md/", "tmp/", ".x/")
NAMES = ("n.md", "N.md", "m.MD", "ü.md", "ü.md", "pic.png", "a", "c.md")
WORDS = (
    "[[n]]",
    "[[N|x]]",
    "[[a/n]]",
    "[y](n.md)",
    "![[pic.png]]",
    "[[m#h]]",
    "[[other]]",
    "#tag",
    "# h",
    "word 知识",
    "[[c]]",
)

paths = st.builds(lambda folder, name: folder + name, st.sampled_from(FOLDERS), st.sampled_from(NAMES))
bodies = st.lists(st.sampled_from(WORDS), max_size=4).map("\n\n".join)
aliases = st.sampled_from(("", "", "---\naliases: [other]\n---\n", "---\naliases: [n, ü]\n---\n", "---\nx: [\n---\n"))
contents = st.builds(lambda head, body: (head + body + "\n").encode(), aliases, bodies) | st.sampled_from(
    (b"", b"\0\1", b"\xff" * 40, b"a" * 400 + b"\xff", b"\xff\xfea\0")
)


class Killed(BaseException):
    """Stands for the end of the process: nothing of ours catches it."""


class Life(RuleBasedStateMachine):
    """A vault that a person, an editor and two processes work on."""

    @initialize()
    def begin(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="vault-lsp-", dir=MEMORY))
        os.environ["VAULT_LSP_INDEX_DIR"] = str(self.base / "index")
        self.root = self.base / "vault"
        self.root.mkdir()
        self.vaults = [Vault.open(self.root)]
        self.used = 0

    def teardown(self) -> None:
        if hasattr(self, "base"):
            try:
                self.whole()
            finally:
                for vault in self.vaults:
                    vault.close()
                shutil.rmtree(self.base)

    @property
    def vault(self) -> Vault:
        self.used += 1
        return self.vaults[self.used % len(self.vaults)]

    def existing(self, number: int, *, folders: bool = False) -> Path | None:
        found = sorted(file for file in self.root.rglob("*") if folders or not file.is_dir())
        return found[number % len(found)] if found else None

    # What happens on disk -------------------------------------------------------------------------------------------

    @rule(path=paths, content=contents, told=st.booleans())
    def write(self, path: str, content: bytes, *, told: bool) -> None:
        file = self.root / path
        for folder in reversed(file.relative_to(self.root).parents):
            if (self.root / folder).is_file():
                (self.root / folder).unlink()
        if file.is_dir():
            shutil.rmtree(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        self.tell(told, file)

    @rule(number=st.integers(0, 99), head=aliases, body=bodies, told=st.booleans())
    def rewrite(self, number: int, head: str, body: str, *, told: bool) -> None:
        file = self.existing(number)
        if file is not None:
            file.write_text(head + body, "utf-8")
            self.tell(told, file)

    @rule(head=aliases)
    def another_alias(self, head: str) -> None:
        """What a link means changes by the alias of another note alone."""
        self.write("links.md", b"[[other]] [[n]]\n", told=False)
        self.write("a/named.md", head.encode(), told=False)
        self.whole()

    @rule(number=st.integers(0, 99), told=st.booleans())
    def edit_unseen(self, number: int, *, told: bool) -> None:
        """Same size, and the time set back to what it was."""
        file = self.existing(number)
        if file is not None and (data := file.read_bytes()):
            before = file.stat()
            file.write_bytes(data[:-1] + (b" " if data[-1:] != b" " else b"\n"))
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
            self.tell(told, file)

    @rule(number=st.integers(0, 99), path=paths, told=st.sampled_from(("", "old", "new", "both")))
    def rename(self, number: int, path: str, told: str) -> None:
        file, target = self.existing(number, folders=True), self.root / path
        if file is None or target.exists() or target.is_relative_to(file):
            return
        if any(parent.is_file() for parent in target.parents):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            return
        file.rename(target)
        self.tell(told, *([file] if told != "new" else []), *([target] if told != "old" else []))

    @rule(number=st.integers(0, 99), told=st.booleans())
    def delete(self, number: int, *, told: bool) -> None:
        file = self.existing(number, folders=True)
        if file is not None:
            if file.is_dir():
                shutil.rmtree(file)
            else:
                file.unlink()
            self.tell(told, file)

    # What happens to the index --------------------------------------------------------------------------------------

    def tell(self, told: object, *files: Path) -> None:
        if told:
            self.vault.reconcile([NotePath(file.relative_to(self.root).as_posix()) for file in files])

    @rule(
        hints=st.lists(
            paths | st.sampled_from(("", ".", "a", "a/", "/", "../x.md", "a//n.md", "c.md", "\0", "\ud800")), max_size=3
        )
    )
    def hint(self, hints: list[str]) -> None:
        self.vault.reconcile(map(NotePath, hints))

    @rule()
    def whole(self) -> None:
        vault = self.vault
        vault.reconcile()
        assert vault.verify() == []
        assert not vault.pending()
        with vault.view() as view:
            everything = view.paths()
            names = Names.of(
                [
                    *everything,
                    *(path for path, (kind, _) in notes.known_files(view.connection).items() if kind == "file"),
                ],
                [path for path, (kind, _) in notes.known_files(view.connection).items() if kind == "folder"],
                [(alias, path) for path in everything for alias in notes.aliases(view.connection, path)],
            )
            expected: dict[str, list[tuple[str, object]]] = {}
            for path in everything:
                note = view.note(path)
                for link in note.links if note else ():
                    to = resolve(link.kind, link.path, "", path, names, view.anchors, aliases=True)
                    if isinstance(to, Found) and to.path != path:
                        expected.setdefault(to.path, []).append((path, link.place))
            for path in {*everything, *expected}:
                found = [(backlink.source, backlink.link.place) for backlink in view.backlinks(NotePath(path))]
                assert found == sorted(expected.get(path, [])), path

    @rule()
    def another_process(self) -> None:
        if len(self.vaults) < 3:
            self.vaults.append(Vault.open(self.root))

    @precondition(lambda self: len(self.vaults) > 1)
    @rule()
    def process_ends(self) -> None:
        self.vaults.pop().close()

    @rule(after=st.integers(0, 3), whole=st.booleans())
    def killed(self, after: int, *, whole: bool) -> None:
        """The process dies in the middle of a transaction, after so many of its statements that write."""
        vault = Vault.open(self.root)
        left = [after * 7]

        def count(*_: object) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        with vault._connections.writer() as connection:
            connection.set_update_hook(count)
        try:
            vault.reconcile(None if whole else [NotePath("a"), NotePath("n.md")])
        except Killed:
            pass
        finally:
            with vault._connections.writer() as connection:
                connection.set_update_hook(None)
        vault.close()

    @rule()
    def rebuild(self) -> None:
        self.vault.rebuild()

    @rule()
    def index_deleted(self) -> None:
        self.vaults[0].index.file.unlink(missing_ok=True)

    @rule()
    def index_folder_deleted(self) -> None:
        shutil.rmtree(self.base / "index", ignore_errors=True)

    @rule(junk=st.sampled_from((b"", b"junk" * 100, b"SQLite format 3\0")))
    def index_damaged(self, junk: bytes) -> None:
        for vault in self.vaults:
            vault.close()
        if self.vaults[0].index.file.exists():
            self.vaults[0].index.file.write_bytes(junk)
        self.vaults = [Vault.open(self.root)]


def test_an_index_kept_up_to_date_equals_one_made_afresh() -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=70,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
