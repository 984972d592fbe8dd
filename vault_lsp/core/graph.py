"""The graph of all notes, and the rules that only it can judge."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from vault_lsp.core.model import Finding, NotePath, Related
from vault_lsp.core.rules import HealthConfig, finding
from vault_lsp.core.text import Place

_NAMED = 4
_DAY_NS = 86_400 * 10**9
#: A part of the graph with more notes than this stands on its own feet.
_SMALL_PART = 5


class Node(NamedTuple):
    """A note in the graph.

    `links` has the files that it links to, with the first link to each; `modified_ns` counts from the epoch.
    """

    title_place: Place
    links: Mapping[NotePath, Place]
    modified_ns: int | None = None


def graph_findings(nodes: Mapping[NotePath, Node], config: HealthConfig, now_ns: int) -> Iterator[Finding]:
    """What is wrong with how the notes hang together. A note's link to itself counts for nothing."""
    sources: dict[NotePath, list[NotePath]] = {path: [] for path in nodes}
    for path, node in nodes.items():
        for target in node.links:
            if target != path and target in sources:
                sources[target].append(path)
    neighbours = {
        path: {*sources[path], *(target for target in node.links if target in nodes)} - {path}
        for path, node in nodes.items()
    }
    ordinary = {path for path in nodes if not config.is_template(path)}
    yield from _isolated(nodes, {path: neighbours[path] for path in ordinary})
    yield from _weak(nodes, {path: neighbours[path] for path in ordinary})
    yield from _one_way(nodes, sources, config)
    yield from _uncited(nodes, sources, config)
    yield from _stale(nodes, config, now_ns)


def _isolated(nodes: Mapping[NotePath, Node], near: Mapping[NotePath, Collection[NotePath]]) -> Iterator[Finding]:
    for path, others in near.items():
        # A link to a picture or a folder leads out of the note as well.
        if not others and not any(target != path for target in nodes[path].links):
            yield finding(
                path, "isolated-note", nodes[path].title_place, "No note links here, and this one links nowhere"
            )


def _weak(nodes: Mapping[NotePath, Node], near: Mapping[NotePath, Collection[NotePath]]) -> Iterator[Finding]:
    """Notes with a single neighbour, and those of small parts that no link joins to the largest one."""
    parts = _parts(near)
    largest = max(map(len, parts), default=0)
    apart = {path: part for part in parts if 1 < len(part) <= _SMALL_PART and len(part) < largest for path in part}
    for path, others in near.items():
        place = nodes[path].title_place
        if path in apart:
            rest = sorted(each for each in apart[path] if each != path)
            message = f"Linked with {_listed(rest)} alone: no link leads to the rest of the vault"
        elif len(others) == 1:
            rest = list(others)
            message = f"{rest[0]} is the only note that this one is linked with"
        else:
            continue
        related = [Related(each, nodes[each].title_place, "linked with this note") for each in rest]
        yield finding(path, "weakly-connected", place, message, related)


def _parts(near: Mapping[NotePath, Collection[NotePath]]) -> list[set[NotePath]]:
    """The sets of notes that links join, whichever way they point."""
    parts: list[set[NotePath]] = []
    seen: set[NotePath] = set()
    for start in near:
        if start in seen:
            continue
        part, waiting = {start}, [start]
        while waiting:
            for other in near.get(waiting.pop(), ()):
                if other not in part:
                    part.add(other)
                    waiting.append(other)
        seen |= part
        parts.append(part)
    return parts


def _one_way(
    nodes: Mapping[NotePath, Node], sources: Mapping[NotePath, list[NotePath]], config: HealthConfig
) -> Iterator[Finding]:
    for path, node in nodes.items():
        if not config.has_role(path, "wiki"):
            continue
        owed = sorted(each for each in sources[path] if each not in node.links and config.has_role(each, "wiki"))
        if owed:
            related = [Related(each, nodes[each].links[path], "the link to this note") for each in owed]
            message = f"Linked from {_listed(owed)}, and never links back"
            yield finding(path, "missing-backlink", node.title_place, message, related)


def _uncited(
    nodes: Mapping[NotePath, Node], sources: Mapping[NotePath, list[NotePath]], config: HealthConfig
) -> Iterator[Finding]:
    if not config.roles.get("wiki"):
        return  # nobody could cite it
    for path, node in nodes.items():
        if config.has_role(path, "clippings") and not any(config.has_role(each, "wiki") for each in sources[path]):
            yield finding(path, "unsourced-clipping", node.title_place, "No wiki note cites this clipping")


def _stale(nodes: Mapping[NotePath, Node], config: HealthConfig, now_ns: int) -> Iterator[Finding]:
    for path, node in nodes.items():
        if node.modified_ns is None or not config.has_role(path, "archive"):
            continue
        if (now_ns - node.modified_ns) // _DAY_NS >= config.archive_after_days:
            message = f"Archived, and not touched for {config.archive_after_days} days or more"
            yield finding(path, "stale-archive", node.title_place, message)


def _listed(paths: list[NotePath]) -> str:
    return ", ".join(paths[:_NAMED]) + (", …" if len(paths) > _NAMED else "")
