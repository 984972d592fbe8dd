"""Merge the rankings of several search channels into one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

#: Rank constant of Reciprocal Rank Fusion (Cormack, Clarke and Büttcher, 2009).
K = 60

WEIGHTS: Mapping[str, float] = MappingProxyType({"bm25": 1.0, "vector": 1.0, "title": 1.5, "indegree": 0.3})


class Place(NamedTuple):
    """Where a document stands in one channel: its rank from 1, and what the channel weighs."""

    rank: int
    weight: float

    @property
    def contribution(self) -> float:
        """What the channel adds to the score."""
        return self.weight / (K + self.rank)


class Fused(NamedTuple):
    """A document with its score and the channels that found it."""

    document: int
    score: float
    channels: Mapping[str, Place]


def fuse(
    channels: Mapping[str, Sequence[int]],
    weights: Mapping[str, float] = WEIGHTS,
    exact: Collection[int] = (),
) -> list[Fused]:
    """Rank documents by the weighted sum of 1 / (K + rank), best first.

    A channel lists documents in its order; a repeated one counts where it stands first, a channel of weight 0 not at
    all. Documents in `exact` come before all others. Ties keep the order in which the documents were met.
    """
    places: dict[int, dict[str, Place]] = {}
    for name, ranking in channels.items():
        weight = weights.get(name, 1.0)
        if weight <= 0:
            continue
        for rank, document in enumerate(dict.fromkeys(ranking), start=1):
            places.setdefault(document, {})[name] = Place(rank, weight)
    fused = [
        Fused(document, sum(place.contribution for place in found.values()), found)
        for document, found in places.items()
    ]
    certain = frozenset(exact)
    fused.sort(key=lambda item: (item.document not in certain, -item.score))
    return fused
