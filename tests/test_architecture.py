"""The dependency table of ARCHITECTURE.md, and what a command may load."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "vault_lsp"


class Layer(NamedTuple):
    """Modules that obey the same rule: what of the project and what of others they may import."""

    modules: tuple[str, ...]
    project: tuple[str, ...]
    others: tuple[str, ...] = ()
    #: Imports allowed inside a function only, because they are heavy.
    inside: tuple[str, ...] = ()


#: What stands between the surfaces and the adapters. Each of these may use the others and all below.
APPLICATION = (
    *("prepare", "indexer", "embedding", "ranking", "search", "semantic", "symbols", "view", "child", "service"),
    *("audit", "doctor", "evaluate", "models", "questions", "repository", "hook", "hooking", "staged"),
)
BASE = ("core", "config", "errors")

#: Modules that are heavy to import, since all their work is numbers. The others of their package do so in functions.
EMBED_HEAVY = (
    *("embed.runtime", "embed.direct", "embed.pieces", "embed.weights", "embed.onnx_export", "embed.tokenizer_export"),
    *("embed.vectors", "embed.download"),
)

LAYERS = (
    Layer(("core",), ("core",), ("pyromark", "yaml", "rjieba")),
    Layer(("errors",), ()),
    Layer(("config",), ("core", "errors"), ("yaml",)),
    Layer(("vault",), BASE, inside=("pathspec",)),
    Layer(("store",), (*BASE, "store"), ("apsw",), inside=("platformdirs", "numpy", "sqlite_vec")),
    Layer(
        EMBED_HEAVY,
        (*BASE, "embed"),
        ("numpy", "onnx", "onnxruntime", "fastembed", "tokenizers", "huggingface_hub", "loguru"),
    ),
    Layer(
        ("embed",),
        (*BASE, "embed"),
        inside=(*(f"vault_lsp.{name}" for name in EMBED_HEAVY), "numpy", "huggingface_hub", "platformdirs"),
    ),
    Layer(
        ("rerank",),
        (*BASE, "embed", "rerank"),
        inside=("fastembed", "loguru", "tokenizers", "mlx", "mlx_lm"),
    ),
    Layer(
        APPLICATION,
        (*BASE, "vault", "store", "embed", "rerank", *APPLICATION),
        ("apsw",),
        inside=("pathspec", "pyromark", "yaml", "rjieba", "numpy"),
    ),
    Layer(
        ("lsp",),
        (*BASE, "vault", *APPLICATION, "lsp"),
        ("pygls", "lsprotocol", "attrs", "cattrs"),
        inside=("watchfiles",),
    ),
    Layer(
        ("cli",),
        (*BASE, "cli"),
        ("click",),
        inside=(*(f"vault_lsp.{name}" for name in ("vault", *APPLICATION)), "vault_lsp.lsp"),
    ),
    Layer(("__main__",), (), inside=("vault_lsp.cli",)),
    Layer(("__init__",), ()),
)

#: Input, output, clocks and logs: not for code that turns values into values.
IMPURE = frozenset(
    {
        *("apsw", "sqlite3", "io", "os", "pathlib", "shutil", "tempfile", "glob", "pickle", "shelve"),
        *("asyncio", "multiprocessing", "threading", "subprocess", "signal", "socket", "selectors", "ctypes"),
        *("logging", "warnings", "random", "time"),
    }
)


class Import(NamedTuple):
    """One imported module, absolute, and whether the statement stands in a function or under TYPE_CHECKING."""

    module: str
    line: int
    inside: bool
    typing: bool


def imports(source: str, package: str) -> Iterator[Import]:
    """Every import of a module's source; `package` is the package that relative imports start from."""

    def visit(node: ast.AST, *, inside: bool, typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for name in child.names:
                    yield Import(name.name, child.lineno, inside, typing)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    parent = package.split(".")[: len(package.split(".")) - child.level + 1]
                    base = ".".join([*parent, base] if base else parent)
                for name in child.names:
                    # `from vault_lsp import store` imports a module just as `import vault_lsp.store` does.
                    deep = base == "vault_lsp" and name.name != "__version__"
                    yield Import(f"{base}.{name.name}" if deep else base, child.lineno, inside, typing)
            else:
                function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                guard = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
                yield from visit(child, inside=inside or function, typing=typing or guard)

    return visit(ast.parse(source), inside=False, typing=False)


def complaints(name: str, source: str) -> list[str]:
    """What in the source of the module `vault_lsp.<name>` breaks the table."""
    top = name.partition(".")[0]
    layer = next((layer for layer in LAYERS if name in layer.modules or top in layer.modules), None)
    if layer is None:
        return [f"{name}: no layer names this module; add it to the table here and to ARCHITECTURE.md"]
    found = []
    for item in imports(source, f"vault_lsp.{name}".rpartition(".")[0]):
        where = f"{name}:{item.line} imports {item.module}"
        head, *rest = item.module.split(".")
        if any(item.module == allowed or item.module.startswith(f"{allowed}.") for allowed in layer.inside):
            if not (item.inside or item.typing):
                found.append(f"{where} outside a function")
        elif head == "vault_lsp":
            if rest and rest[0] not in layer.project:
                found.append(where)
        elif head in sys.stdlib_module_names:
            if top == "core" and head in IMPURE:
                found.append(where)
        elif head not in layer.others:
            found.append(where)
    if top == "core":
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
        found += [
            f"{name} calls {ast.unparse(call.func)}"
            for call in calls
            if getattr(call.func, "id", "") in {"open", "print"}
        ]
    return found


def modules() -> dict[str, Path]:
    """Module name below `vault_lsp` → file; a package counts as its `__init__`."""
    return {".".join(file.relative_to(PACKAGE).with_suffix("").parts): file for file in sorted(PACKAGE.rglob("*.py"))}


@pytest.mark.parametrize("name", modules())
def test_imports_point_down_only(name: str) -> None:
    assert complaints(name, modules()[name].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("core.parse", "import sqlite3"),
        ("core.parse", "import vault_lsp.store.db"),
        ("core.parse", "from .. import service"),
        ("core.parse", "from ..store import db"),
        ("core.parse", "def f():\n    import logging"),
        ("core.parse", "import click"),
        ("core.parse", "def f(p):\n    return open(p)"),
        ("store.db", "from vault_lsp import service"),
        ("vault", "from vault_lsp.store import db"),
        ("service", "import click"),
        ("service", "from lsprotocol import types"),
        ("lsp.server", "from vault_lsp.store import db"),
        ("lsp.server", "import vault_lsp.cli"),
        ("cli.commands", "from vault_lsp.service import open_vault"),
        ("cli.commands", "def f():\n    from vault_lsp.store import db"),
        ("cli.commands", "import pygls"),
        ("embed.models", "import numpy"),
        ("embed.models", "from vault_lsp.embed.runtime import FastEmbedder"),
        ("embed.models", "def f():\n    import fastembed"),
        ("embed.runtime", "from vault_lsp.store import db"),
        ("surprise", ""),
    ],
)
def test_a_forbidden_import_is_seen(name: str, source: str) -> None:
    assert len(complaints(name, source)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("core.parse", "import re\nimport pyromark\nfrom vault_lsp.core.text import Text\nfrom .model import Note"),
        ("store.db", "import apsw\ndef f():\n    import platformdirs"),
        ("embed.models", "def f():\n    from vault_lsp.embed.runtime import FastEmbedder"),
        ("embed.runtime", "import numpy\nfrom fastembed import TextEmbedding"),
        (
            "cli.commands",
            "import click\nfrom vault_lsp import __version__\ndef f():\n    from vault_lsp.service import open_vault",
        ),
        (
            "lsp.features.navigate",
            "from ..convert import x\nfrom lsprotocol import types\nfrom vault_lsp.service import y",
        ),
    ],
)
def test_an_allowed_import_is_let_through(name: str, source: str) -> None:
    assert complaints(name, source) == []


def test_every_file_of_the_core_is_looked_at() -> None:
    assert {"core.model", "core.text", "core.parse", "core.links", "core.tokens"} <= modules().keys()


#: Prints the modules that the command line in argv loads.
LOADED = """
import sys
from vault_lsp.__main__ import main
try:
    main()
except SystemExit as end:
    if end.code not in (0, None):
        raise
sys.stdout.write("\\n--modules--\\n" + "\\n".join(sys.modules))
"""


def loaded(arguments: list[str], vault: Path, index: Path) -> set[str]:
    """The top-level and dotted names of all modules in the process at the end of one command."""
    run = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        cwd=vault,
        env={**os.environ, "VAULT_LSP_INDEX_DIR": str(index), "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.partition("\n--modules--\n")[2].split("\n"))


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--version"], {"pygls", "lsprotocol", "watchfiles", "asyncio", "apsw", "yaml", "rjieba", "pyromark"}),
        (["get", "note.md"], {"pygls", "lsprotocol", "watchfiles", "asyncio"}),
        (["search", "spade"], {"pygls", "lsprotocol", "watchfiles", "asyncio"}),
        (["status"], {"pygls", "lsprotocol", "watchfiles", "asyncio"}),
        (["links", "note.md"], {"pygls", "lsprotocol", "watchfiles", "asyncio"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_shell_command_loads_nothing_of_the_server(arguments: list[str], absent: set[str], tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "note.md").write_text("# Note\n\nA spade. [[note]]\n", encoding="utf-8")
    names = loaded(arguments, vault, tmp_path / "index")
    assert "click" in names
    assert names & absent == set()
