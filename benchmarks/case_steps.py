"""What a case needs to run: its commands, its session, and the steps that a case spells out."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from client import Client, FailedError, Json, Target, expect, ordinary

BROKEN = frozenset({"broken-link", "broken-heading", "broken-block", "broken-reference", "readme-link"})


class Done(NamedTuple):
    """A finished command."""

    code: int
    out: str
    err: str
    seconds: float


class Run:
    """One case on disk, with the commands and sessions that its steps use."""

    def __init__(self, case: Json, vault: Path, env: dict[str, str]) -> None:
        self.case = case
        self.vault = vault
        self.env = env
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """One session for all steps; it announces no position encoding, so columns count UTF-16 units."""
        if self._client is None:
            self._client = Client(self.vault, self.env).__enter__()
        return self._client

    def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            client.__exit__()

    def command(self, words: str | Sequence[str], **extra: str) -> Done:
        """Run a command in the vault; a string goes through the shell."""
        argv = ["sh", "-c", words] if isinstance(words, str) else list(words)
        begun = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                code = subprocess.run(
                    [*ordinary(), *argv],
                    cwd=self.vault,
                    env={**self.env, **extra},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    timeout=150,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                raise FailedError(f"{words}: not done within 150 s") from None
            seconds = time.monotonic() - begun
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode("utf-8", "replace"))
        expect("Traceback (most recent call last)" not in "".join(texts), f"{words}: traceback: {texts[1][-200:]}")
        return Done(code, texts[0], texts[1], seconds)

    def cli(self, *words: str, code: int | None = 0, **extra: str) -> Done:
        done = self.command(["vault-lsp", *words], **extra)
        expect(code is None or done.code == code, f"{words}: exit code {done.code}: {done.err.strip()[-200:]}")
        return done

    def index(self) -> None:
        self.cli("index")

    def notes(self) -> int:
        return int(json.loads(self.cli("status", "--json").out)["notes"])

    def answer(self, query: str, *options: str, **extra: str) -> Json:
        """What a search prints as JSON."""
        answer: Json = json.loads(self.cli("search", "--json", "-k", "50", *options, "--", query, **extra).out)
        return answer

    def search(self, query: str) -> list[str]:
        """The notes that have the words of a query, best first; by meaning others join them, and none is lost."""
        found = paths(self.answer(query, "--mode", "keyword"))
        hybrid = paths(self.answer(query))
        expect(set(found) <= set(hybrid), f"search {query!r}: of {found} some are lost by meaning: {hybrid}")
        expect(set(found[:1]) <= set(hybrid[:3]), f"search {query!r}: {found[0:1]} isn't among the first of {hybrid}")
        return found

    def inspect(self, path: str) -> Json:
        seen: Json = json.loads(self.cli("inspect", "--json", "--", path).out)
        return seen

    def broken(self, path: str) -> list[str]:
        """Where the broken links of a note are, as `line:character` of the diagnostic's start."""
        found = [item for item in self.client.diagnostics(path) if item.get("code") in BROKEN]
        return [f"{item['range']['start']['line']}:{item['range']['start']['character']}" for item in found]


# Steps ---------------------------------------------------------------------------------------------------------------


def step(run: Run, wanted: Json) -> None:
    """Carry out one step and check what it expects."""
    if wanted["do"] == "sh":
        subprocess.run(wanted["cmd"], shell=True, cwd=run.vault, check=True)
    elif wanted["do"] == "cli":
        command_step(run, wanted["cmd"], wanted.get("expect") or {})
    elif wanted["do"] == "lsp":
        params = {**wanted, **wanted.get("params", {})}
        LSP_STEPS[wanted["method"]](run, params, wanted.get("expect"))
    else:
        raise FailedError(f"unknown step {wanted['do']}")


def command_step(run: Run, words: str | list[str], wanted: Json) -> None:
    asks_results = "hit" in wanted or "hits" in wanted
    if asks_results:
        # How many notes say something is a question to the words: by meaning all are more or less near.
        json_words = f"vault-lsp search --json -k 50 {'--mode keyword ' if 'hits' in wanted else ''}"
        words = (
            words.replace("vault-lsp search ", json_words)
            if isinstance(words, str)
            else [*shlex.split(json_words), *words[words.index("search") + 1 :]]
        )
    done = run.command(words)
    shown = words if isinstance(words, str) else shlex.join(words)
    if "max_seconds" in wanted:
        expect(done.seconds <= wanted["max_seconds"], f"{shown}: took {done.seconds:.1f} s")
    code = wanted.get("rc", 0 if asks_results else None)
    if code == "!=0":
        expect(done.code != 0, f"{shown}: exit code 0")
    elif code is not None:
        expect(done.code == code, f"{shown}: exit code {done.code}: {done.err[-200:]}")
    if "not_in_output" in wanted:
        expect(wanted["not_in_output"] not in done.out + done.err, f"{shown}: prints {wanted['not_in_output']}")
    if "notes" in wanted:
        expect(run.notes() == wanted["notes"], f"{run.notes()} notes, not {wanted['notes']}")
    if asks_results:
        found = paths(json.loads(done.out))
        if "hit" in wanted:
            expect(wanted["hit"] in found, f"{shown}: {wanted['hit']} not among {found}")
        if "hits" in wanted:
            expect(len(found) == wanted["hits"], f"{shown}: {found}, not {wanted['hits']} hits")


def diagnostics_step(run: Run, params: Json, wanted: Any) -> None:
    """Each broken link is marked, somewhere inside the link, and nothing else is marked as broken."""
    path = params["path"]
    found = [item for item in run.client.diagnostics(path) if item.get("code") in BROKEN]
    left = list(found)
    for due in wanted["broken"]:
        match = next((item for item in left if inside(item["range"], due["range"])), None)
        expect(match is not None, f"{path}: no finding for {due['text']}: {brief(found)}")
        left.remove(match or {})
    expect(not left, f"{path}: findings too many: {brief(left)}")


def definition_step(run: Run, params: Json, wanted: Any) -> None:
    path, position = params["path"], params["position"]
    run.client.open(path)
    targets = run.client.definition(path, position["line"], position["character"])
    place = f"{path}:{position['line']}:{position['character']}"
    if wanted is None:
        expect(not targets, f"{place}: leads to {targets}")
    elif isinstance(wanted, dict):
        expect(targets, f"{place}: leads nowhere, not to {wanted['target']}")
        expect(targets[0].path == wanted["target"], f"{place}: leads to {targets[0].path}, not {wanted['target']}")
        if "line" in wanted:
            expect(targets[0].line == wanted["line"], f"{place}: leads to line {targets[0].line}, not {wanted['line']}")


def references_step(run: Run, params: Json, wanted: Any) -> None:
    position = params["position"]
    found = run.client.references(params["path"], position["line"], position["character"])
    places = [run.client.target(item) for item in found]
    if "count" in wanted:
        expect(len(found) == wanted["count"], f"{len(found)} references, not {wanted['count']}: {places}")
    if "lines" in wanted:
        due = [Target(wanted["in"], line) for line in wanted["lines"]]
        expect(sorted(places) == sorted(due), f"references {places}, not {due}")
    if "ranges" in wanted:
        expect(len(found) == len(wanted["ranges"]), f"{len(found)} references, not {len(wanted['ranges'])}")
        for due_range in wanted["ranges"]:
            expect(any(inside(item["range"], due_range) for item in found), f"no reference at {due_range}: {found}")


def change_step(run: Run, params: Json, wanted: Any) -> None:
    """The server's text after changes by range is the client's: it finds the same links as in the whole text."""
    client, path = run.client, params["path"]
    client.open(path)
    client.change(path, params["contentChanges"], wanted["text"])
    by_range = client.links(path)
    if "definition_at" in wanted:
        line, character = wanted["definition_at"]
        targets = client.definition(path, line, character)
        expect([target.path for target in targets] == [wanted["target"]], f"leads to {targets}, not {wanted['target']}")
    client.replace(path, wanted["text"])
    expect(by_range == client.links(path), f"{path}: other links than in the text sent as a whole")
    expect(by_range, f"{path}: no links at all")


LSP_STEPS: dict[str, Callable[[Run, Json, Any], None]] = {
    "diagnostics": diagnostics_step,
    "textDocument/definition": definition_step,
    "textDocument/references": references_step,
    "textDocument/didChange": change_step,
}


def paths(answer: Json) -> list[str]:
    """The notes of a search's answer."""
    return [result["path"] for result in answer["results"]]


def inside(inner: Json, outer: Json) -> bool:
    """Whether a range lies in another and covers something."""
    start, end = point(inner["start"]), point(inner["end"])
    return point(outer["start"]) <= start < end <= point(outer["end"])


def point(position: Json) -> tuple[int, int]:
    return position["line"], position["character"]


def brief(diagnostics: Iterable[Json]) -> list[str]:
    return [
        f"{item['code']} {item['range']['start']['line']}:{item['range']['start']['character']}" for item in diagnostics
    ]
