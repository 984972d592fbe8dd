"""Outlines and names."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lsp.conftest import Opened
from tests.support import Client, serving, write

Make = Callable[..., Opened]


def outline(here: Opened, path: str) -> Any:
    return here.client.request("textDocument/documentSymbol", {"textDocument": {"uri": here.uri(path)}})


def test_an_outline_follows_the_buffer(opened: Make) -> None:
    here = opened("=== a.md\n# Disk\n")
    uri = here.open("a.md")
    here.client.change(uri, 2, {"text": "# A\n### C\n## B\ntext\n# D\n"})
    first, last = outline(here, "a.md")
    assert [each["name"] for each in first["children"]] == ["C", "B"]
    assert (first["range"]["end"]["line"], last["name"]) == (4, "D")


def test_a_client_without_nesting_gets_a_list(tmp_path: Path) -> None:
    root = write(tmp_path / "vault", {"a.md": "# A\n## B\n#\n"})
    with serving(tmp_path / "cache") as client:
        client.initialize(rootPath=str(root))
        here = Opened(client, root, {}, None)
        found = outline(here, "a.md")
        assert [(each["name"], each.get("containerName")) for each in found] == [("A", None), ("B", "A")]


def test_names_are_found_with_their_kind_and_place(opened: Make) -> None:
    here = opened("=== a/fig.md\n---\naliases: [Ficus carica]\n---\n# Fig\n## Pruning\n=== b.md\n# Bees\n")
    (pruning,) = here.client.request("workspace/symbol", {"query": "prun"})
    assert (pruning["name"], pruning["containerName"]) == ("Pruning", "a/fig")
    assert here.spot(pruning["location"]) == "a/fig.md:4"
    (alias,) = here.client.request("workspace/symbol", {"query": "ficus"})
    assert (alias["name"], alias["kind"]) == ("Ficus carica", 1)
    assert here.symbols("") != []


def test_names_of_all_vaults_are_found(opened: Make) -> None:
    one = opened("=== a.md\n# Pear one\n", "one")
    two = opened("=== b.md\n# Pear two\n", "two")
    assert one.symbols("Pear") == [("Pear one", "a.md")]
    assert two.symbols("Pear") == [("Pear two", "b.md")]


def test_no_more_symbols_than_the_settings_allow(opened: Make) -> None:
    here = opened("".join(f"=== n{i}.md\n# Plum {i}\n" for i in range(9)))
    here.client.notify("workspace/didChangeConfiguration", {"settings": {"vaultLsp": {"symbols": {"limit": 4}}}})
    assert len(here.client.request("workspace/symbol", {"query": "plum"})) == 4
    here.client.notify("workspace/didChangeConfiguration", {"settings": {"vaultLsp": {"symbols": {"limit": 200}}}})
    assert len(here.client.request("workspace/symbol", {"query": "plum"})) == 9


def test_an_enormous_outline_blocks_nobody(opened: Make) -> None:
    here = opened("=== a.md\n[[b]]\n=== b.md\n# B\n")
    here.open("big.md", "# Top\n" + "".join(f"## heading {i}\n" for i in range(40_000)))
    here.targets("a.md", 0, 2)
    big = here.client.start("textDocument/documentSymbol", {"textDocument": {"uri": here.uri("big.md")}})
    took = []
    while here.client._responses[big].empty():
        begun = time.monotonic()
        here.client.at("definition", "untitled:nothing", 0, 0)
        took.append(time.monotonic() - begun)
    (top,) = here.client.finish(big)
    assert len(top["children"]) == 40_000
    assert len(took) > 3
    assert max(took[:-1]) < 1.0  # the last one waits in this process for its reading of the big answer


def test_a_storm_of_cancelled_requests_ends_in_answers(opened: Make, client: Client) -> None:
    opened("".join(f"=== n{i}.md\n# Plum {i}\n## Part\n" for i in range(50)))
    asked = [client.start("workspace/symbol", {"query": "plum"}) for _ in range(50)]
    for identity in asked[:-1]:
        client.notify("$/cancelRequest", {"id": identity})
    assert client.finish(asked[-1], timeout=5)
    for identity in asked[:-1]:
        response = client._responses[identity].get(timeout=5)
        assert "result" in response or response["error"]["code"] == -32800
