"""The operators of one call, joined to what is drawn of them.

An operator joins the one that alone uses its result. This makes no way between any two other things that was
not there before, and no circle. What brings two branches together, an addition, a gate or a concatenation,
does not vanish in what brings in yet another one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from modelglass.analyses.flow.relevance import Relevance
from modelglass.analyses.flow.trace import Trace
from modelglass.analyses.flow.words import is_heavy, word

SOURCES = 32  # sources followed apart; with more, an operator counts as a source itself
HEAVY = 40  # operators of a call that do a layer's work and are drawn apart


@dataclass(slots=True)
class Cluster:
    """Operators drawn as one, in order. `joins` are what brings branches together, by its name, and where
    these come from.

    What comes after such a join and brings in nothing new has no name there.
    """

    ops: list[int]
    heavy: bool
    joins: dict[str, set[frozenset[Hashable]]] = field(default_factory=dict)


@dataclass(slots=True)
class Clusters:
    """`at` is the cluster of each operator; `left_out` are operators that are not drawn."""

    found: list[Cluster]
    at: dict[int, Cluster]
    left_out: list[int]


def clusters(trace: Trace, relevance: Relevance, call: int, own: list[int]) -> Clusters:
    """Join the call's own operators, those of the calls in it not included."""
    drawn = [at for at in own if relevance.fed[at] and relevance.used[at]]
    left_out = [at for at in own if not (relevance.fed[at] and relevance.used[at])]
    work = _Work(trace, relevance, call, set(drawn))
    for at in drawn:
        work.look(at)
    for at in reversed(drawn):
        work.start(at)
    if work.join_twins():
        for cluster in sorted(work.all(), key=lambda cluster: -max(cluster.ops)):
            work.join(cluster)
    found = work.all()
    for cluster in found:
        cluster.ops.sort()
    found.sort(key=lambda cluster: cluster.ops[0])
    return Clusters(found=found, at=work.at, left_out=left_out)


class _Work:
    def __init__(self, trace: Trace, relevance: Relevance, call: int, own: set[int]) -> None:
        self.trace, self.relevance, self.call, self.own = trace, relevance, call, own
        self.at: dict[int, Cluster] = {}
        self.sources: dict[int, frozenset[Hashable]] = {}
        self.joining: set[int] = set()
        self.after_heavy: set[int] = set()
        self.apart = sum(is_heavy(trace.ops[at]) for at in own) <= HEAVY

    def look(self, at: int) -> None:
        """Find what an operator's values come from, through the call's own operators before it."""
        branches = [self._sources_of(number) for number in self.trace.reads[at]]
        every = frozenset().union(*branches)
        if len(every) > 1 and every not in branches:
            self.joining.add(at)
        self.sources[at] = every if len(every) <= SOURCES else frozenset((("op", at),))
        before = (self.trace.made_by.get(number) for number in self.trace.reads[at])
        if is_heavy(self.trace.ops[at]) or any(each in self.after_heavy for each in before):
            self.after_heavy.add(at)

    def _sources_of(self, number: int) -> frozenset[Hashable]:
        maker = self.trace.made_by.get(number)
        if maker is None:
            return frozenset((("input", number),))
        if maker in self.own:
            return self.sources[maker]
        module = self.trace.side(self.trace.call[maker], self.call)
        if module is not None:
            return frozenset((("call", module),))
        return frozenset((("op", maker),)) if self.relevance.fed[maker] else frozenset()

    def start(self, at: int) -> None:
        """Make an operator a cluster of its own, and give it to the one that alone uses it."""
        op = self.trace.ops[at]
        cluster = Cluster(ops=[at], heavy=self.apart and is_heavy(op))
        if len(self.sources[at]) > 1 or at in self.joining:
            cluster.joins[word(op) if at in self.joining else ""] = {self.sources[at]}
        self.at[at] = cluster
        self.join(cluster)

    def join(self, cluster: Cluster) -> None:
        """Give a cluster to the one that alone uses it, if there is one that it fits."""
        users = self._users(cluster)
        user = users[0] if len(users) == 1 else None
        if user is not None and self._fits(cluster, user):
            self._merge(cluster, user)

    def all(self) -> list[Cluster]:
        """The clusters there are by now."""
        return list({id(cluster): cluster for cluster in self.at.values()}.values())

    def _merge(self, cluster: Cluster, into: Cluster) -> None:
        into.ops.extend(cluster.ops)
        into.heavy = into.heavy or cluster.heavy
        for name, sources in cluster.joins.items():
            into.joins.setdefault(name, set()).update(sources)
        for each in cluster.ops:
            self.at[each] = into

    def _users(self, cluster: Cluster) -> list[Cluster | None]:
        """The clusters that use what one made; None for a module, an output, or another call."""
        users: dict[int, Cluster | None] = {}
        for number in (number for at in cluster.ops for number in self.trace.writes[at]):
            if number in self.trace.returned:
                users[0] = None
            for reader in self.trace.readers.get(number, ()):
                user = self.at.get(reader)
                if user is cluster:
                    continue
                if user is not None:
                    users[id(user)] = user
                elif self.trace.call[reader] != self.call:
                    users[0] = None
        return list(users.values())

    def _fits(self, cluster: Cluster, user: Cluster) -> bool:
        if user.heavy and any(at in self.after_heavy for at in cluster.ops):
            return False
        return all(
            (name == other and name != "") or (len(sources) == 1 and sources == others)
            for name, sources in cluster.joins.items()
            for other, others in user.joins.items()
        )

    def join_twins(self) -> bool:
        """Join clusters that have the same before them and after them, such as a sine and a cosine."""
        twins: dict[Hashable, Cluster] = {}
        before = len(self.all())
        for cluster in self.all():
            if cluster.heavy or cluster.joins:
                continue
            key = self._surroundings(cluster)
            if key not in twins:
                twins[key] = cluster
            else:
                self._merge(cluster, twins[key])
        return len(self.all()) < before

    def _surroundings(self, cluster: Cluster) -> Hashable:
        inside = set(cluster.ops)
        before = frozenset(
            number
            for at in cluster.ops
            for number in self.trace.reads[at]
            if self.trace.made_by.get(number) not in inside
        )
        after = frozenset(
            self._place(reader)
            for at in cluster.ops
            for number in self.trace.writes[at]
            for reader in (*self.trace.readers.get(number, ()), *self.trace.returned.get(number, ()))
            if reader not in inside
        )
        return before, after

    def _place(self, reader: int | str) -> Hashable:
        if isinstance(reader, str):
            return "output", reader
        if reader in self.at:
            return "cluster", id(self.at[reader])
        return "call", self.trace.side(self.trace.call[reader], self.call)
