"""Merge the rankings of several search channels into one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

#: Rank constant of Reciprocal Rank Fusion (Cormack, Clarke and Büttcher, 2009).
K = 60

#: What each channel weighs, chosen on one half of the questions of two retrieval sets; see benchmarks/README.md.
WEIGHTS: Mapping[str, float] = MappingProxyType({"bm25": 1.0, "vector": 0.6, "title": 1.5, "indegree": 0.3})

#: The channel of documents that are called exactly what was asked for.
EXACT = "exact"


class Ranked(NamedTuple):
    """A document in a channel's order. `strength`, 0 to 1, is how good it is beside the best that there could be."""

    document: int
    strength: float = 1.0


class Place(NamedTuple):
    """Where a document stands in one channel: its rank from 1, what the channel weighs, and how strong it is."""

    rank: int
    weight: float
    strength: float = 1.0

    @property
    def contribution(self) -> float:
        """What the channel adds to the score."""
        return self.weight * self.strength / (K + self.rank)


class Fused(NamedTuple):
    """A document with its score, the channels that found it, and the factors that its score was multiplied by."""

    document: int
    score: float
    channels: Mapping[str, Place]
    factors: Mapping[str, float] = MappingProxyType({})


def fuse(
    channels: Mapping[str, Sequence[Ranked]],
    weights: Mapping[str, float] = WEIGHTS,
    exact: Collection[int] = (),
) -> list[Fused]:
    """Rank documents by the weighted sum of strength / (K + rank), best first.

    A channel lists documents in its order; a repeated one counts where it stands first, a channel of weight 0 not at
    all. Documents in `exact` come before all others, by a channel of their own that outweighs the rest. Ties keep the
    order in which the documents were met.

    Plain ranks know no difference between a channel whose first hit is far ahead of its second, and one that offers
    sixty hits of the same little worth; the strengths tell.
    """
    places: dict[int, dict[str, Place]] = {}
    for name, ranking in channels.items():
        weight = weights.get(name, 1.0)
        if weight <= 0:
            continue
        strengths: dict[int, float] = {}
        for document, strength in ranking:
            strengths.setdefault(document, strength)
        for rank, (document, strength) in enumerate(strengths.items(), start=1):
            places.setdefault(document, {})[name] = Place(rank, weight, strength)
    for document in places.keys() & set(exact):
        places[document][EXACT] = Place(1, 1 + sum(weights.values()))
    fused = [
        Fused(document, sum(place.contribution for place in found.values()), found)
        for document, found in places.items()
    ]
    fused.sort(key=lambda item: -item.score)
    return fused


def boosted(ranking: Sequence[Fused], factors: Mapping[int, Mapping[str, float]]) -> list[Fused]:
    """Multiply the scores of documents by their factors and rank anew; exact matches stay before all others."""
    multiplied = []
    for item in ranking:
        own = {name: factor for name, factor in factors.get(item.document, {}).items() if factor != 1}
        score = item.score
        for factor in own.values():
            score *= factor
        multiplied.append(item._replace(score=score, factors=own))
    multiplied.sort(key=lambda item: (EXACT not in item.channels, -item.score))
    return multiplied
