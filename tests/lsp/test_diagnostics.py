"""What is wrong, told at the right time to clients of each kind; what is wrong is tested with the core."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.conftest import Opened, shown
from tests.support import Client, environment, serving, vault, write

Make = Callable[..., Opened]

PULLING = {
    "textDocument": {"diagnostic": {}},
    "workspace": {"diagnostics": {"refreshSupport": True}},
}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Starts a server of its own on a vault, for a client with other abilities."""
    running = []

    def start(text: str, capabilities: dict[str, Any], **more: Any) -> Opened:
        files, cursor = vault(text)
        root = write(tmp_path / "vault", files)
        server = serving(tmp_path / "cache")
        client = server.__enter__()
        running.append(server)
        client.answers["workspace/diagnostic/refresh"] = None
        client.initialize(root, capabilities=capabilities, **more)
        return Opened(client, root, files, cursor)

    yield start
    for server in running:
        server.__exit__(None, None, None)


def pull(here: Opened, path: str, previous: str | None = None) -> Any:
    parameters = {"textDocument": {"uri": here.uri(path)}, "previousResultId": previous}
    return here.client.request("textDocument/diagnostic", parameters)


def watched(here: Opened, *changes: tuple[str, int]) -> None:
    events = [{"uri": here.uri(path), "type": kind} for path, kind in changes]
    here.client.notify("workspace/didChangeWatchedFiles", {"changes": events})


# Pushed -------------------------------------------------------------------------------------------------------------


def test_every_broken_link_has_its_own_diagnostic(opened: Make) -> None:
    here = opened("=== a.md\n[[fig]] [[fig#Pulp]] [[gone]] [[gone]]\n[[fig#No]] [[fig#^no]]\n=== fig.md\n# Pulp\n")
    here.open("a.md")
    here.wait_for_findings(
        "a.md",
        ["broken-link 0:21-29", "broken-link 0:30-38", "broken-heading 1:0-10", "broken-block 1:11-22"],
    )
    first = (here.client.published(here.uri("a.md")) or [])[0]
    assert (first["source"], first["severity"]) == ("vault-lsp", 1)


def test_diagnostics_carry_the_version_that_they_belong_to(opened: Make) -> None:
    here = opened("=== a.md\n[[gone]]\n")
    uri = here.open("a.md", version=4)
    here.wait_for_findings("a.md", ["broken-link 0:0-8"])
    for version in range(5, 30):
        here.client.change(uri, version, {"text": f"{'x' * version}[[gone]]\n"})
    here.wait_for_findings("a.md", ["broken-link 0:29-37"])
    pushed = [x for x in here.client.notified("textDocument/publishDiagnostics") if x["uri"] == uri]
    versions = [each["version"] for each in pushed]
    assert versions == sorted(versions)
    assert versions[-1] == 29
    assert len(versions) < 10
    for each in pushed:
        if each["version"] > 4:
            assert [shown(x) for x in each["diagnostics"]] == [f"broken-link 0:{each['version']}-{each['version'] + 8}"]


def test_the_first_change_after_a_pause_is_checked_at_once(session: Make) -> None:
    here = session("=== a.md\n# A\n", {}, initializationOptions={"diagnostics": {"debounce_ms": 5000}})
    uri = here.open("a.md")
    here.wait_for_findings("a.md", [])
    here.client.change(uri, 2, {"text": "[[gone]]\n"})
    time.sleep(0.4)
    assert here.broken("a.md") == []  # it was opened a moment ago: the debounce runs
    here.client.notify("workspace/didChangeConfiguration", {"settings": {"diagnostics": {"debounceMs": 100}}})
    time.sleep(0.2)
    here.client.change(uri, 3, {"text": "x [[gone]]\n"})
    here.wait_for_findings("a.md", ["broken-link 0:2-10"], timeout=1)


def test_related_places_reach_clients_that_know_them(opened: Make, session: Make) -> None:
    text = "=== log.md\nSee [[pear]].\n=== a/pear.md\nx\n=== b/pear.md\ny\n"
    here = opened(text)
    here.open("log.md")
    here.wait_for_findings("log.md", ["ambiguous-link 0:4-12"])
    (found,) = here.client.published(here.uri("log.md")) or []
    assert sorted(here.path(each["location"]["uri"]) for each in found["relatedInformation"]) == [
        "a/pear.md",
        "b/pear.md",
    ]
    plain = session(text, {})
    plain.open("log.md")
    plain.wait_for_findings("log.md", ["ambiguous-link 0:4-12"])
    assert "relatedInformation" not in (plain.client.published(plain.uri("log.md")) or [])[0]


def test_a_closed_note_has_no_diagnostics(opened: Make) -> None:
    here = opened("=== a.md\n[[gone]]\n")
    uri = here.open("a.md")
    here.wait_for_findings("a.md", ["broken-link 0:0-8"])
    here.client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    here.wait_for_findings("a.md", [])


def test_a_setting_turns_them_off_and_on(opened: Make) -> None:
    here = opened("=== a.md\n[[gone]]\n")
    here.open("a.md")
    here.wait_for_findings("a.md", ["broken-link 0:0-8"])
    here.client.notify("workspace/didChangeConfiguration", {"settings": {"diagnostics": {"enable": False}}})
    here.wait_for_findings("a.md", [])
    here.client.notify("workspace/didChangeConfiguration", {"settings": {"diagnostics": {"enable": True}}})
    here.wait_for_findings("a.md", ["broken-link 0:0-8"])


def test_a_wrong_setting_is_reported_and_changes_nothing(opened: Make) -> None:
    here = opened("=== a.md\n[[gone]]\n")
    here.client.notify("workspace/didChangeConfiguration", {"settings": {"diagnostics": {"enable": 3}}})
    here.client.wait_for(lambda: here.client.notified("window/showMessage"))
    assert "vaultLsp.diagnostics.enable" in here.client.notified("window/showMessage")[0]["message"]
    here.open("a.md")
    here.wait_for_findings("a.md", ["broken-link 0:0-8"])


def test_settings_are_fetched_from_clients_that_keep_them(session: Make) -> None:
    here = session("=== a.md\n[[gone]]\n", {})
    here.client.close()
    with serving(here.root.parent / "cache") as client:
        client.answers["workspace/configuration"] = [{"diagnostics": {"enable": False}}]
        capabilities = {"workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}}}
        client.initialize(here.root, capabilities=capabilities)
        client.wait_for(lambda: [x for x in client.asked if x["method"] == "workspace/configuration"])
        client.wait_for(lambda: [x for x in client.asked if x["method"] == "client/registerCapability"])
        again = Opened(client, here.root, here.files, None)
        again.open("a.md")
        again.wait_for_findings("a.md", [])
        client.answers["workspace/configuration"] = [{"diagnostics": {"enable": True}}]
        client.notify("workspace/didChangeConfiguration", {"settings": None})
        again.wait_for_findings("a.md", ["broken-link 0:0-8"])


# Neighbours ---------------------------------------------------------------------------------------------------------


def test_neighbours_follow_what_the_client_does_with_files(opened: Make) -> None:
    here = opened("=== a.md\n[[b]]\n")
    here.open("a.md")
    here.wait_for_findings("a.md", ["broken-link 0:0-5"])
    write(here.root, {"b.md": "# B\n"})
    here.client.notify("workspace/didCreateFiles", {"files": [{"uri": here.uri("b.md")}]})
    here.wait_for_findings("a.md", [])
    (here.root / "b.md").rename(here.root / "c.md")
    renamed = {"files": [{"oldUri": here.uri("b.md"), "newUri": here.uri("c.md")}]}
    here.client.notify("workspace/didRenameFiles", renamed)
    here.wait_for_findings("a.md", ["broken-link 0:0-5"])
    (here.root / "c.md").rename(here.root / "b.md")
    watched(here, ("c.md", 3), ("b.md", 1))
    here.wait_for_findings("a.md", [])
    (here.root / "b.md").unlink()
    here.client.notify("workspace/didDeleteFiles", {"files": [{"uri": here.uri("b.md")}]})
    here.wait_for_findings("a.md", ["broken-link 0:0-5"])


def test_a_renamed_folder_takes_its_notes_along(opened: Make) -> None:
    here = opened("=== a.md\n[[old/fig]] [[new/fig]]\n=== old/fig.md\n# Fig\n")
    here.open("a.md")
    here.wait_for_findings("a.md", ["broken-link 0:12-23"])
    (here.root / "old").rename(here.root / "new")
    renamed = {"files": [{"oldUri": here.uri("old"), "newUri": here.uri("new")}]}
    here.client.notify("workspace/didRenameFiles", renamed)
    here.wait_for_findings("a.md", ["broken-link 0:0-11"])
    assert here.symbols("Fig") == [("Fig", "new/fig.md")]


def test_changes_that_nobody_reports_are_seen(opened: Make) -> None:
    here = opened("=== a.md\n[[late]] [[deep/fig]]\n=== fig.md\n# Fig\n")
    here.open("a.md")
    here.wait_for_findings("a.md", ["broken-link 0:0-8", "broken-link 0:9-21"])
    time.sleep(0.3)
    write(here.root, {"late.md": "# Late\n"})
    here.wait_for_findings("a.md", ["broken-link 0:9-21"], timeout=5)
    (here.root / "deep").mkdir()
    (here.root / "fig.md").rename(here.root / "deep/fig.md")
    here.wait_for_findings("a.md", [], timeout=5)
    assert here.symbols("fig") == [("Fig", "deep/fig.md")]


def test_hidden_files_change_nothing(opened: Make) -> None:
    here = opened("=== a.md\n[[x]]\n")
    here.open("a.md")
    here.wait_for_findings("a.md", ["broken-link 0:0-5"])
    write(here.root, {".trash/x.md": "# X\n", ".obsidian/x.md": "# X\n", "y.md": "# Y\n"})
    watched(here, (".trash/x.md", 1), (".obsidian/x.md", 1), ("y.md", 1))
    here.client.wait_for(lambda: here.symbols("Y") == [("Y", "y.md")])
    assert here.broken("a.md") == ["broken-link 0:0-5"]
    assert here.symbols("X") == []


def test_the_index_of_another_process_is_seen(session: Make) -> None:
    here = session("=== a.md\n[[b]]\n", {})
    here.open("a.md")
    here.wait_for_findings("a.md", ["broken-link 0:0-5"])
    write(here.root, {"b.md": "# B\n"})
    variables = {**environment(), "VAULT_LSP_INDEX_DIR": str(here.root.parent / "cache")}
    command = [sys.executable, "-m", "vault_lsp", "--vault", str(here.root), "index"]
    subprocess.run(command, env=variables, check=True, capture_output=True)
    here.wait_for_findings("a.md", [], timeout=5)


def test_a_batch_of_deletions_is_one_pass_and_one_refresh(session: Make) -> None:
    notes = "".join(f"=== n{i}.md\n[[n{i + 100}]]\n" for i in range(100))
    notes += "".join(f"=== n{i + 100}.md\n# N{i + 100}\n" for i in range(100))
    here = session(notes, PULLING)
    here.open("n0.md")
    here.client.wait_for(lambda: [x for x in here.client.notified("vault/status") if x["phase"] == "idle"])
    time.sleep(0.3)
    before = len(here.client.asked), len(here.client.notified("vault/status"))
    for i in range(100, 200):
        (here.root / f"n{i}.md").unlink()
    watched(here, *((f"n{i}.md", 3) for i in range(100, 200)))
    here.client.wait_for(lambda: len(pull(here, "n0.md")["items"]) == 1)
    time.sleep(1.5)
    assert [each["method"] for each in here.client.asked[before[0] :]] == ["workspace/diagnostic/refresh"]
    idle = here.client.notified("vault/status")[before[1] :]
    assert [(each["phase"], each["documents"]) for each in idle] == [("idle", 100)]


# Pulled -------------------------------------------------------------------------------------------------------------


def test_a_client_that_pulls_is_pushed_nothing(session: Make) -> None:
    here = session("=== a.md\n[[gone]]\n", PULLING)
    uri = here.open("a.md")
    first = pull(here, "a.md")
    assert (first["kind"], [shown(x) for x in first["items"]]) == ("full", ["broken-link 0:0-8"])
    assert pull(here, "a.md", first["resultId"]) == {"kind": "unchanged", "resultId": first["resultId"]}
    here.client.change(uri, 2, {"text": "x [[gone]]\n"})
    assert [shown(x) for x in pull(here, "a.md", first["resultId"])["items"]] == ["broken-link 0:2-10"]
    assert here.client.notified("textDocument/publishDiagnostics") == []


def test_a_client_that_pulls_is_asked_to_when_the_vault_changes(session: Make) -> None:
    here = session("=== a.md\n[[b]]\n", PULLING)
    here.open("a.md")
    assert len(pull(here, "a.md")["items"]) == 1
    here.client.wait_for(lambda: [x for x in here.client.notified("vault/status") if x["phase"] == "idle"])
    time.sleep(0.2)  # the first index asks as well
    here.client.asked.clear()
    write(here.root, {"b.md": "# B\n"})
    watched(here, ("b.md", 1))
    here.client.wait_for(lambda: [x for x in here.client.asked if x["method"] == "workspace/diagnostic/refresh"])
    assert pull(here, "a.md")["items"] == []


def test_the_whole_workspace_can_be_pulled(session: Make) -> None:
    here = session("=== a.md\n[[gone]]\n=== b.md\n# fine\n=== c.md\n[[gone too]]\n", PULLING)
    here.open("c.md", version=7)

    def ask(*previous: tuple[str, str]) -> dict[str, Any]:
        known = [{"uri": here.uri(path), "value": value} for path, value in previous]
        items = here.client.request("workspace/diagnostic", {"previousResultIds": known})["items"]
        return {here.path(each["uri"]): each for each in items}

    first = ask()
    assert {path: (x["kind"], len(x["items"]), x["version"]) for path, x in first.items()} == {
        "a.md": ("full", 1, None),
        "c.md": ("full", 1, 7),
    }
    known = [(path, each["resultId"]) for path, each in first.items()]
    assert {path: each["kind"] for path, each in ask(*known).items()} == {"a.md": "unchanged", "c.md": "unchanged"}
    write(here.root, {"gone.md": "", "c.md": ""})
    (here.root / "c.md").unlink()
    here.client.notify("textDocument/didClose", {"textDocument": {"uri": here.uri("c.md")}})
    watched(here, ("gone.md", 1), ("c.md", 3))
    clean = {"a.md": ("full", []), "c.md": ("full", [])}
    here.client.wait_for(lambda: {path: (x["kind"], x.get("items")) for path, x in ask(*known).items()} == clean)


# The first index ----------------------------------------------------------------------------------------------------


def progress(client: Client) -> list[str]:
    return [each["value"]["kind"] for each in client.notified("$/progress")]


def big_vault(root: Path) -> Path:
    text = "words of a note that says little\n" * 300
    return write(root, {"a.md": "[[n7]] [[gone]]\n", **{f"n{i}.md": f"# N{i}\n{text}" for i in range(120)}})


def test_a_first_index_shows_its_progress_and_its_phase(tmp_path: Path) -> None:
    root = big_vault(tmp_path / "vault")
    with serving(tmp_path / "cache") as client:
        client.initialize(root, capabilities={"window": {"workDoneProgress": True}})
        client.wait_for(lambda: [x for x in client.notified("vault/status") if x["phase"] == "idle"])
        client.wait_for(lambda: "end" in progress(client))
        shown_kinds = progress(client)
        assert shown_kinds[0] == "begin"
        assert shown_kinds[-1] == "end"
        assert shown_kinds.count("begin") == shown_kinds.count("end") == 1
        token = client.notified("$/progress")[0]["token"]
        assert isinstance(token, str)
        phases = [each["phase"] for each in client.notified("vault/status")]
        assert phases[0] == "scanning"
        assert client.notified("vault/status")[-1]["documents"] == 121
    with serving(tmp_path / "cache") as client:
        client.initialize(root, capabilities={"window": {"workDoneProgress": True}})
        client.wait_for(lambda: [x for x in client.notified("vault/status") if x["phase"] == "idle"])
        assert progress(client) == []


@pytest.mark.parametrize("answer", [..., "refused"])
def test_a_client_that_shows_no_progress_stops_nothing(tmp_path: Path, answer: object) -> None:
    root = big_vault(tmp_path / "vault")
    with serving(tmp_path / "cache") as client:
        if answer is ...:
            client.answers["window/workDoneProgress/create"] = ...
        else:
            del client.answers["window/workDoneProgress/create"]
        client.initialize(root, capabilities={"window": {"workDoneProgress": True}})
        client.wait_for(lambda: [x for x in client.notified("vault/status") if x["phase"] == "idle"])
        assert progress(client) == []


def test_answers_are_right_while_a_first_index_runs(tmp_path: Path) -> None:
    root = big_vault(tmp_path / "vault")
    with serving(tmp_path / "cache") as client:
        client.initialize(root)
        here = Opened(client, root, {}, None)
        here.open("a.md", "[[n7]] [[gone]] [[n7#N7]]\n")
        assert here.targets("a.md", 0, 2) == ["n7.md:0"]
        here.wait_for_findings("a.md", ["broken-link 0:7-15"])
        assert len(here.ask("references", "n7.md", 0, 2, context={"includeDeclaration": False})) == 2


# Watching and commands ----------------------------------------------------------------------------------------------


def test_files_are_watched_by_the_client_where_it_can(session: Make) -> None:
    here = session("=== a.md\n# A\n", {"workspace": {"didChangeWatchedFiles": {"dynamicRegistration": True}}})
    here.client.wait_for(lambda: [x for x in here.client.asked if x["method"] == "client/registerCapability"])
    (asked,) = [x for x in here.client.asked if x["method"] == "client/registerCapability"]
    (registration,) = asked["params"]["registrations"]
    assert registration["method"] == "workspace/didChangeWatchedFiles"
    assert registration["registerOptions"] == {"watchers": [{"globPattern": "**/*"}]}


def test_commands_tell_and_renew_the_index(opened: Make) -> None:
    here = opened("=== a.md\n# A\n")

    def run(command: str) -> Any:
        return here.client.request("workspace/executeCommand", {"command": command, "arguments": [{"x": 1}]})

    assert run("vault-lsp.reindex") is None
    (mine,) = [each for each in run("vault-lsp.status") if each["vault"] == here.root.as_uri()]
    assert (mine["phase"], mine["documents"]) == ("idle", 1)


def test_a_changed_config_is_taken_up(opened: Make) -> None:
    here = opened("=== a.md\n[[gone]]\n")
    here.open("a.md")
    here.wait_for_findings("a.md", ["broken-link 0:0-8"])
    write(here.root, {".vault-lsp/config.yaml": "health:\n  rules: {broken-link: hint}\n"})
    watched(here, (".vault-lsp/config.yaml", 1))
    uri = here.uri("a.md")
    here.client.wait_for(lambda: [x["severity"] for x in here.client.published(uri) or []] == [4])


def test_what_has_no_effect_in_a_config_is_shown_there(opened: Make) -> None:
    here = opened("=== .vault-lsp/config.yaml\ngitignore: true\nunheard_of: 1\n=== a.md\n[[gone]]\n")
    config = ".vault-lsp/config.yaml"
    here.client.wait_for(lambda: here.client.published(here.uri(config)))
    (problem,) = here.client.published(here.uri(config)) or []
    assert (problem["code"], problem["range"]["start"]) == ("config", {"line": 1, "character": 0})
    assert "unheard_of" in problem["message"]
    write(here.root, {config: "gitignore: true\n"})
    watched(here, (config, 2))
    here.wait_for_findings(config, [])
