"""Every finding of a vault: note by note, then what only the graph of all notes tells, and the files that it lacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from vault_lsp.core.graph import Node, graph_findings
from vault_lsp.core.health import findings, judged, ordered
from vault_lsp.core.links import Names, name_key
from vault_lsp.core.model import Finding, Found, Link, Note, NotePath, Resolution, Severity
from vault_lsp.core.rules import RULES, TOP, Catalogue, HealthConfig, finding
from vault_lsp.core.text import Place
from vault_lsp.store import notes
from vault_lsp.view import View


class _Remembering:
    """The catalogue of a view, which resolves each link once."""

    def __init__(self, view: View) -> None:
        self.names: Names = view.names
        self.anchors = view.anchors
        self._resolve = view.resolve
        self._resolved: dict[tuple[NotePath, str, str, str], Resolution] = {}

    def resolve(self, source: NotePath, link: Link) -> Resolution:
        key = (source, link.kind, link.path, link.subpath)
        known = self._resolved.get(key)
        if known is None:
            known = self._resolved[key] = self._resolve(source, link)
        return known


def audit(view: View, config: HealthConfig, wanted: Callable[[NotePath], bool] = lambda _: True) -> tuple[Finding, ...]:
    """All findings of the wanted notes, by path and place, as this config wants them."""
    running = {rule.scope for name, rule in RULES.items() if config.severity(name) is not Severity.OFF}
    found: dict[NotePath, list[Finding]] = {}
    known = {note.path: note for note in view.for_rules()}
    catalogue = _Remembering(view)
    if "note" in running:
        for path, note in known.items():
            if wanted(path):
                found[path] = list(findings(note, catalogue, config))
    if "graph" in running:
        of_graph: dict[NotePath, list[Finding]] = {}
        for each in graph_findings(graph(view, known, catalogue), config, time.time_ns()):
            if wanted(each.path):
                of_graph.setdefault(each.path, []).append(each)
        for path, told in of_graph.items():
            found.setdefault(path, []).extend(judged(known[path], told, config))
    if "vault" in running:
        for each in _missing_files(view, config):
            if wanted(each.path):
                found.setdefault(each.path, []).append(each)
    return tuple(each for path in sorted(found) for each in ordered(found[path]))


def graph(view: View, known: Mapping[NotePath, Note], catalogue: Catalogue | None = None) -> dict[NotePath, Node]:
    """The graph of all notes, each with the files that it links to."""
    catalogue = catalogue or view
    times = notes.known(view.connection)
    nodes = {}
    for path, note in known.items():
        links: dict[NotePath, Place] = {}
        for link in note.links:
            resolution = catalogue.resolve(path, link)
            if isinstance(resolution, Found):
                links.setdefault(resolution.path, link.place)
        nodes[path] = Node(note.title_place, links, times[path].mtime_ns if path in times else None)
    return nodes


def _missing_files(view: View, config: HealthConfig) -> Iterator[Finding]:
    severity = config.severity("missing-file")
    for file in config.expected_files:
        key = name_key(file.strip("/"))
        if not view.names.files_at(key) and not view.names.folders_at(key):
            path = NotePath(file.strip("/"))
            yield finding(path, "missing-file", TOP, "The config expects this file")._replace(severity=severity)
