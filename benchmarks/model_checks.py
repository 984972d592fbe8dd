"""What cases about vectors and models ask for in words, with tiny models of our own and a hub on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from case_checks import NotRunError, case
from case_steps import Done, Run, paths
from client import Client, FailedError, Json, expect

from tests.embed.hub_server import FakeHub, serving
from tests.tiny_models import tiny_embedder
from vault_lsp.embed import bundled, hub

CONFIG = ".vault-lsp/config.yaml"

#: Seconds within which words are found, whatever the models do.
SOON = 3.0

#: A model of fastembed's list, and the repository that it lies in.
LISTED = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
REPOSITORY = "Qdrant/paraphrase-multilingual-MiniLM-L12-v2-onnx-Q"


def configure(run: Run, model: Path | str) -> None:
    file = run.vault / CONFIG
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"embedding: {{model: {model}}}\n", encoding="utf-8")


def one_line(done: Done, *parts: str) -> None:
    """Nothing but one line is said on stderr, with these words."""
    expect(done.err.count("\n") == 1, f"not one line on stderr: {done.err!r}")
    expect(all(part in done.err for part in parts), f"{done.err.strip()!r} doesn't speak of {parts}")


def embedded(run: Run, count: int, **extra: str) -> None:
    answer = indexed(run, **extra)
    expect((answer["embedded"], answer["left"]) == (count, 0), f"embedded {answer['embedded']}, not {count}: {answer}")


def indexed(run: Run, **extra: str) -> Json:
    return as_json(run.cli("index", "--json", **extra))


def status(run: Run, **extra: str) -> Json:
    return as_json(run.cli("status", "--json", **extra))


def as_json(done: Done) -> Json:
    answer: Json = json.loads(done.out)
    return answer


def meanings(run: Run, query: str, **extra: str) -> list[tuple[str, float]]:
    """The ranking by vectors alone, with what makes the score."""
    answer = run.answer(query, "--mode", "semantic", **extra)
    return [(result["path"], round(result["score"], 9)) for result in answer["results"]]


def answered(client: Client, query: str, path: str) -> Json:
    """A note that a server finds by its words, soon, by both requests."""
    begun = time.monotonic()
    answer: Json = client.request("vault/search", {"query": query})
    seconds = time.monotonic() - begun
    expect(path in paths(answer), f"the server finds {paths(answer)} for {query}")
    expect(seconds < SOON + 1, f"the server took {seconds:.1f} s to find {query}")
    expect(client.symbols(query), f"no symbols for {query}")
    return answer


@contextmanager
def session(run: Run, prefix: Sequence[str] = (), **extra: str) -> Iterator[Client]:
    """A server that must have started within the time, and must not have complained of itself."""
    begun = time.monotonic()
    with Client(run.vault, {**run.env, **extra}, prefix=prefix) as client:
        expect(time.monotonic() - begun < SOON, f"the server took {time.monotonic() - begun:.1f} s to start")
        yield client
        expect("Traceback" not in client.stderr(), f"traceback of the server: {client.stderr()[-300:]}")


def embedding_of(client: Client) -> Json:
    answer: Json = client.request("vault/status", None)["vaults"][0]
    return answer


# DB-04 ---------------------------------------------------------------------------------------------------------------


@case("DB-04")
def another_model(run: Run) -> None:
    run.env.pop("VAULT_LSP_EMBEDDING", None)
    top = run.vault.parent
    models = {
        "small": tiny_embedder(top / "models-here/small", dimensions=4, seed=1),
        "wide": tiny_embedder(top / "models-here/wide", dimensions=8, seed=2),
        "twin": tiny_embedder(top / "models-here/twin", dimensions=8, seed=3),
    }
    notes = len(list(run.vault.glob("*.md")))
    configure(run, models["small"])
    embedded(run, notes)
    former = "small"
    for name in ("wide", "twin", "small"):
        configure(run, models[name])
        changed(run, former, name, notes)
        embedded(run, notes)
        served_by(run, name, notes)
        expect(meanings(run, "boats") == afresh(run), f"{name} after {former} ranks otherwise than alone")
        embedded(run, 0)
        former = name
    # The same name and dimension, other weights.
    tiny_embedder(models["small"], dimensions=4, seed=9)
    changed(run, "small", "small", notes)
    embedded(run, notes)
    served_by(run, "small", notes)
    expect(meanings(run, "boats") == afresh(run), "other weights under the same name were mixed with the old ones")
    without_former(run, models, notes)
    in_a_server(run, models, notes)


def changed(run: Run, former: str, name: str, notes: int) -> None:
    """Between the new setting and `index`: words are found, one line tells, no vectors of two models meet."""
    done = run.cli("search", "boats")
    expect(done.out.splitlines()[0].find("n.md") >= 0, f"boats after {former} became {name}: {done.out}")
    one_line(done, name)
    told = status(run)
    expect(told["semantic"] != "on" or told["model"].endswith(former), f"{name} can't be on: {told}")
    expect(told["model_note"], f"status says nothing of {name}: {told}")


def served_by(run: Run, name: str, notes: int) -> None:
    told = status(run)
    seen = (told["semantic"], told["embedded"], Path(told["model"]).name, told["model_note"])
    expect(seen == ("on", notes, name, ""), f"status after index with {name}: {seen}")
    done = run.cli("search", "boats")
    expect("n.md" in done.out and not done.err, f"search with {name}: {done.err or done.out}")
    expect(len(meanings(run, "boats")) == notes, f"by meaning not all notes: {meanings(run, 'boats')}")


def afresh(run: Run) -> list[tuple[str, float]]:
    """The ranking of an index that never knew another model."""
    folder = {"VAULT_LSP_INDEX_DIR": str(run.vault.parent / f"fresh-{time.monotonic_ns()}")}
    run.cli("index", **folder)
    return meanings(run, "boats", **folder)


def without_former(run: Run, models: Mapping[str, Path], notes: int) -> None:
    """The former model can't embed questions any more: words alone, and one line."""
    configure(run, models["wide"])
    aside = models["small"].rename(models["small"].with_name("gone"))
    expect("n.md" in run.search("boats"), "words aren't found once the former model is gone")
    one_line(run.cli("search", "boats"), "vault-lsp index", "wide", "small")
    embedded(run, notes)
    served_by(run, "wide", notes)
    aside.rename(models["small"])


def in_a_server(run: Run, models: Mapping[str, Path], notes: int) -> None:
    """A server that finds another setting than the index's embeds by itself, and answers meanwhile."""
    configure(run, models["twin"])
    with session(run) as client:
        answered(client, "boats", "n.md")
        deadline = time.monotonic() + 20
        while not str(status(run)["model"]).endswith("twin") or status(run)["semantic"] != "on":
            expect(time.monotonic() < deadline, f"the server doesn't embed with the new model: {embedding_of(client)}")
            client.settle(0.3)
        answer = answered(client, "boats", "n.md")
        expect(len(paths(answer)) == notes, f"the server's answer by meaning: {paths(answer)}")
    embedded(run, 0)


# DB-06 ---------------------------------------------------------------------------------------------------------------

#: Installations without the extension: what stands in the place of its package, and a word of the reason.
BROKEN = {
    "missing": ("raise ImportError('none')", "sqlite-vec"),
    "no file": ("def loadable_path(): return '/nonexistent/vec0'", "sqlite-vec"),
    "junk": (
        "from pathlib import Path\ndef loadable_path(): return str(Path(__file__).with_name('vec0'))",
        "sqlite-vec",
    ),
    "other interface": ("", "sqlite-vec"),
}


@case("DB-06")
def without_extension(run: Run) -> None:
    run.close()
    run.env.pop("VAULT_LSP_EMBEDDING", None)
    configure(run, tiny_embedder(run.vault.parent / "tiny"))
    more = {f"n{number}.md": f"# Note {number}\n\nword{number} [[a]] [[nowhere]]\n" for number in range(30)}
    for path, text in more.items():
        (run.vault / path).write_text(text, encoding="utf-8")
    notes = len(more) + 1
    embedded(run, notes)
    for number, (name, (code, reason)) in enumerate(BROKEN.items()):
        shadow = run.vault.parent / f"shadow-{number}"
        shadow.mkdir()
        (shadow / "sqlite_vec.py").write_text(code, encoding="utf-8")
        (shadow / "vec0.so").write_bytes(b"no library")
        broken = {"PYTHONPATH": f"{shadow}{os.pathsep}{run.env['PYTHONPATH']}"}
        try:
            words_only(run, reason, f"n{number}.md", **broken)
            made_without(run, reason, **broken)
        except FailedError as error:
            raise FailedError(f"extension {name}: {error}") from error
        # The deleted note and the changed ones: what came meanwhile gets its vectors, nothing else.
        notes -= 1
        embedded(run, 1)
        told = status(run)
        expect((told["semantic"], told["embedded"]) == ("on", notes + number + 1), f"{name}: vectors not back: {told}")
        expect(f"new{number}.md" in dict(meanings(run, "newword")), f"{name}: a new note has no vector")


def words_only(run: Run, reason: str, gone: str, **extra: str) -> None:
    """All works but vectors, with one line, on an index that has them."""
    number = gone[1:-3]
    (run.vault / gone).unlink()
    (run.vault / f"new{number}.md").write_text(f"newword{number}x [[nowhere]]\n", encoding="utf-8")
    for options in ((), ("--rebuild",), ()):
        one_line(run.cli("index", *options, **extra), reason)
    expect(gone not in paths(run.answer(f"word{number}", **extra)), "a deleted note is still found")
    expect("a.md" in paths(run.answer("alphaword", **extra)), "alphaword isn't found")
    expect(f"new{number}.md" in paths(run.answer(f"newword{number}x", **extra)), "a new note isn't found")
    one_line(run.cli("search", "--mode", "semantic", "alphaword", **extra), reason)
    told = status(run, **extra)
    expect(told["semantic"] == "off" and reason in told["model_note"], f"status: {told}")
    expect("by words only" in run.cli("status", **extra).out, "status doesn't say that vectors are off")
    expect("alphaword" in run.cli("get", "a.md", **extra).out, "get")
    run.cli("inspect", "--json", "a.md", **extra)
    checked = run.cli("doctor", "--verify", code=None, **extra)
    bad = [line for line in checked.out.splitlines() if not line.startswith("ok")]
    expect(len(bad) == 1 and reason in bad[0], f"doctor finds more than the extension: {bad}")
    with session(run, **extra) as client:
        path = f"new{number}.md"
        answered(client, f"newword{number}x", path)
        answered(client, "alphaword", "a.md")
        expect(any(item["code"] == "broken-link" for item in client.diagnostics(path)), "no diagnostics")
        other = next(file.name for file in run.vault.glob("n[0-9]*.md"))
        client.open(other)
        expect([target.path for target in client.definition(other, 2, 11)], "no definition")
        # Saves go on to be indexed.
        client.close(path)
        (run.vault / path).write_text(f"newword{number}x newword [[nowhere]]\n", encoding="utf-8")
        client.watched((path, 2))
        client.settle(2.0)
        answered(client, "newword", path)
        complaints = [line for line in client.stderr().splitlines() if reason in line]
        expect(len(complaints) <= 1, f"the server complains {len(complaints)} times: {complaints[:2]}")


def made_without(run: Run, reason: str, **extra: str) -> None:
    """An index that is made without the extension gets its vectors when that is there."""
    folder = {"VAULT_LSP_INDEX_DIR": str(run.vault.parent / f"without-{time.monotonic_ns()}")}
    one_line(run.cli("index", **extra, **folder), reason)
    expect("a.md" in paths(run.answer("alphaword", **extra, **folder)), "alphaword isn't found in a new index")
    embedded(run, len(list(run.vault.glob("*.md"))), **folder)
    expect(status(run, **folder)["semantic"] == "on", "vectors don't come with the extension")


# DB-07 ---------------------------------------------------------------------------------------------------------------


@case("DB-07")
def model_not_there(run: Run) -> None:
    offline = [found] if (found := shutil.which("unshare")) else []
    offline += ["-n", "--"] if os.geteuid() == 0 else ["-rn", "--"]
    if not offline[0].endswith("unshare") or subprocess.run([*offline, "true"], check=False).returncode:
        raise NotRunError("needs a network namespace: unshare -n")
    run.close()
    run.env.pop("VAULT_LSP_EMBEDDING", None)
    top = run.vault.parent
    (top / "scratch").mkdir()
    run.env["TMPDIR"] = str(top / "scratch")
    fake = FakeHub()
    fake.repositories = {
        REPOSITORY: tiny_embedder(top / "listed", dimensions=384, file="model_optimized.onnx"),
        hub.MULTILINGUAL_E5.repository: tiny_embedder(top / "e5", dimensions=384, seed=1, file="onnx/model.onnx"),
    }
    with serving(fake) as address:
        online = {"HF_ENDPOINT": address, "NO_PROXY": "*", "HF_HOME": str(top / "hub-home")}
        for name, repository in ((LISTED, REPOSITORY), (hub.MULTILINGUAL_E5.name, hub.MULTILINGUAL_E5.repository)):
            configure(run, name)
            for state in ("empty", "cut", "folder", "half"):
                try:
                    lacking(run, name, repository, state, offline, online)
                except FailedError as error:
                    raise FailedError(f"{name}, {state}: {error}") from error
                left = [file.name for file in (top / "scratch").iterdir()]
                expect(not left, f"{state}: left in the temporary folder: {left}")
    if bundled.is_carried():
        damaged_bundled(run, offline)


def lacking(
    run: Run, name: str, repository: str, state: str, offline: Sequence[str], online: Mapping[str, str]
) -> None:
    """One way in which a model isn't there, without a network and when it is back."""
    folder = run.vault.parent / f"models-{state}-{hub.folder_name(repository)}"
    own = {"VAULT_LSP_MODEL_DIR": str(folder), "VAULT_LSP_INDEX_DIR": f"{folder}-index"}
    if state in {"cut", "half"}:
        run.cli("model", "fetch", name, **own, **online)
        for file in folder.rglob("*.onnx"):
            whole = file.read_bytes()
            # As a cleaner of temporary folders leaves it, or a power cut.
            file.write_bytes(whole[: len(whole) // 3] if state == "cut" else b"")
        if state == "half":
            for file in folder.rglob("tokenizer*.json"):
                file.unlink()
    elif state == "folder":
        (folder / hub.folder_name(repository)).mkdir(parents=True)
        (folder / hub.folder_name(name)).mkdir(parents=True, exist_ok=True)
    else:
        folder.mkdir()
    for words in (("index",), ("search", "alphaword"), ("search", "--json", "alphaword"), ("index",)):
        done = run.command([*offline, "vault-lsp", *words], **own)
        expect(done.code == 0, f"{words}: exit code {done.code}: {done.err}")
        expect(done.seconds < SOON, f"{words}: took {done.seconds:.1f} s")
        one_line(done, name, f"vault-lsp model fetch {name}")
        expect(words[0] == "index" or "a.md" in done.out, f"{words}: {done.out}")
    refused = run.command([*offline, "vault-lsp", "model", "fetch", name], **own)
    expect(refused.code == 1, f"a fetch without a network: exit code {refused.code}")
    expect(refused.seconds < SOON + 2, f"a fetch without a network: {refused.seconds:.1f} s")
    one_line(refused, name)
    with session(run, offline, **own) as client:
        answered(client, "alphaword", "a.md")
        expect(name in embedding_of(client)["why"], f"the server's status: {embedding_of(client)}")
    expect(any(hub.folder_name(repository) in str(f) for f in folder.iterdir()) or state == "empty", "deleted by hand")
    run.cli("model", "fetch", name, **own, **online)
    embedded(run, 1, **own)
    done = run.command([*offline, "vault-lsp", "search", "--json", "--explain", "alphaword"], **own)
    expect('"vector"' in done.out and not done.err, f"not repaired by a fetch: {done.err or done.out}")


def damaged_bundled(run: Run, offline: Sequence[str]) -> None:
    """The bundled model is made where nothing is, in the user's cache; what became of its files is repaired."""
    home = run.vault.parent / "home"
    home.mkdir()
    own = {"HOME": str(home), "XDG_CACHE_HOME": "", "VAULT_LSP_MODEL_DIR": ""}
    configure(run, "auto")

    def works(when: str) -> None:
        for words in (("index",), ("search", "--json", "--explain", "alphaword")):
            done = run.command([*offline, "vault-lsp", *words], **own)
            expect(done.code == 0 and not done.err, f"{when}: {words}: {done.code} {done.err}")
        expect('"vector"' in done.out, f"{when}: not found by meaning: {done.out}")

    works("nothing there")
    [file] = home.rglob("model.onnx")
    expect(file.is_relative_to(home / ".cache"), f"the model lies in {file}")
    size = file.stat().st_size
    os.truncate(file, size // 2)
    works("cut off")
    expect(file.stat().st_size == size, "the model that was cut off isn't repaired")
    for rest in file.parent.iterdir():
        rest.unlink()
    works("an empty folder")
    with file.open("r+b") as stream:
        stream.write(bytes(4096))
    works("other bytes")
    expect(file.stat().st_size == size, "the model with other bytes isn't repaired")
