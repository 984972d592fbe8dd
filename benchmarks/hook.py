"""How much longer a commit of one note takes with the hooks, and when the note can be found.

    python benchmarks/hook.py [--notes 3000] [--rounds 15]

Commits with and without the hooks take turns in one repository. `floor` is a hook that does nothing at all.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vault_lsp.repository import EVENTS


class Bench:
    def __init__(self, base: Path, notes: int) -> None:
        self.top = base / "vault"
        self.top.mkdir()
        here = Path(__file__).resolve().parent.parent
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            "PYTHONPATH": os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH")])),
            "HOME": str(base),
            "VAULT_LSP_INDEX_DIR": str(base / "index"),
            "VAULT_LSP_EMBEDDING": "none",
            **{f"GIT_{who}_{what}": "a@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
        for number in range(notes):
            file = self.top / f"{number % 40:02}/note {number}.md"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"# Note {number}\n\nText of note {number}, see [[note {(number * 7) % notes}]].\n" * 5)
        self.run("git", "init", "-q")
        self.run("git", "add", "-A")
        self.run("git", "commit", "-qm", "all")
        self.vault_lsp("index", "--no-embed")

    def run(self, *command: str, **env: str) -> str:
        done = subprocess.run(
            command, cwd=self.top, env={**self.env, **env}, capture_output=True, text=True, check=True
        )
        return done.stdout

    def vault_lsp(self, *arguments: str) -> str:
        return self.run(sys.executable, "-P", "-m", "vault_lsp", *arguments)

    def commit(self, word: str, **env: str) -> float:
        """Seconds that `git commit` of one changed note takes, while its caller reads what it prints."""
        note = self.top / "00/note 0.md"
        note.write_text(note.read_text() + f"\n{word}\n")
        self.run("git", "add", "-A")
        started = time.perf_counter()
        self.run("git", "commit", "-qm", "one", **env)
        return time.perf_counter() - started

    def floor_hooks(self) -> None:
        for event in EVENTS:
            file = self.top / ".git/hooks" / event
            file.write_text("#!/bin/sh\n")
            file.chmod(0o755)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notes", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vault-lsp-") as folder:
        bench = Bench(Path(folder), chosen.notes)
        database = next((Path(folder) / "index").glob("*/index-v*.db"))
        times: dict[str, list[float]] = {"no hook": [], "floor": [], "hook": []}
        rows: list[float] = []
        for number in range(chosen.rounds):
            times["no hook"].append(bench.commit(f"none{number}"))
            bench.floor_hooks()
            times["floor"].append(bench.commit(f"floor{number}"))
            for event in EVENTS:
                (bench.top / ".git/hooks" / event).unlink()
            bench.vault_lsp("hook", "install")
            started = time.perf_counter()
            times["hook"].append(bench.commit(f"found{number}"))
            rows.append(_until_found(database, f"found{number}") - started)
            bench.vault_lsp("hook", "uninstall")
        medians = {name: statistics.median(values) * 1000 for name, values in times.items()}
        print(f"git commit of one note among {chosen.notes}, median of {chosen.rounds}, ms: {json.dumps(medians)}")
        print(f"more with the hook: {medians['hook'] - medians['no hook']:.1f} ms")
        print(f"from the beginning of the commit until the note is found: {statistics.median(rows) * 1000:.0f} ms")


def _until_found(database: Path, word: str) -> float:
    """The moment at which the word is in the index."""
    import apsw

    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE sql LIKE '%fts5%'")]
    deadline = time.perf_counter() + 30
    while time.perf_counter() < deadline:
        for table in tables:
            if connection.execute(f'SELECT count(*) FROM "{table}" WHERE "{table}" MATCH ?', (word,)).fetchall() != [
                (0,)
            ]:
                connection.close()
                return time.perf_counter()
        time.sleep(0.005)
    raise SystemExit("the note was not found within 30 s")


if __name__ == "__main__":
    main()
