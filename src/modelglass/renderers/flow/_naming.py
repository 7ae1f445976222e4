"""How a line of text names a node that stands on another line, so that no other could be meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from modelglass.page import flow_words as _words
from modelglass.report import Flow, FlowNode


class Names:
    """Names of nodes in the order of their lines.

    A node is called by its own name where the nearest of that name further up is meant; by its group's and
    its own ("encoder.norm") where only one has both; and else it has a number: `tags`, to be shown on its
    own line, too.
    """

    def __init__(
        self,
        flow: Flow,
        order: Sequence[FlowNode],
        sources: Mapping[str, Sequence[str]],
        carried: Mapping[str, Sequence[str]],
    ) -> None:
        self._nodes = {node.id: node for node in flow.nodes}
        self._place = {node.id: index for index, node in enumerate(order)}
        self._shared = {name for name, count in Counter(map(_words.called, order)).items() if count > 1}
        self._full = Counter(self._path(node.id, None) for node in order)
        self._nearest = _nearest(order)
        self.tags = self._tag(order, sources, carried)

    def of(self, id: str, reader: str) -> str:
        """What the reader's line calls the node."""
        name = _words.called(self._nodes[id])
        tagged = name + self.tags.get(id, "")
        if id in self.tags or (self._is_nearest(id, reader) and not name.isdigit()):
            return tagged
        return self._path(id, self._nodes[reader].group)

    def within(self, id: str, group: FlowNode) -> str:
        """What the last line of a group calls a node in it."""
        name = _words.called(self._nodes[id])
        if id in self.tags or (name not in self._shared and not name.isdigit()):
            return name + self.tags.get(id, "")
        return self._path(id, group.id)

    def _tag(
        self,
        order: Sequence[FlowNode],
        sources: Mapping[str, Sequence[str]],
        carried: Mapping[str, Sequence[str]],
    ) -> Mapping[str, str]:
        needed = {
            source
            for node in order
            for source in sources.get(node.id, ())
            if not self._is_nearest(source, node.id) and not self._is_told_by_path(source, node)
        }
        for source, targets in carried.items():
            needed |= {id for id in targets if id != source and self._full[self._path(id, None)] > 1}
        counts: Counter[str] = Counter()
        tags = {}
        for node in order:
            name = _words.called(node)
            if node.id in needed and name in self._shared:
                counts[name] += 1
                tags[node.id] = f"#{counts[name]}"
        return tags

    def _is_nearest(self, id: str, reader: str) -> bool:
        name = _words.called(self._nodes[id])
        return name not in self._shared or self._nearest[reader].get(name) == id

    def _is_told_by_path(self, id: str, reader: FlowNode) -> bool:
        path = self._path(id, reader.group)
        return path != _words.called(self._nodes[id]) and self._full[self._path(id, None)] == 1

    def _path(self, id: str, common: str | None) -> str:
        """The node's name after those of the groups around it, up to one that holds the reader, too."""
        holders = set(self._around(common)) if common is not None else set()
        groups = [group for group in self._around(self._nodes[id].group) if group not in holders]
        labels = [self._nodes[group].label for group in reversed(groups)]
        return ".".join([*filter(None, labels), _words.called(self._nodes[id])])

    def _around(self, group: str | None) -> Iterator[str]:
        while group is not None:
            yield group
            group = self._nodes[group].group


def _nearest(order: Sequence[FlowNode]) -> Mapping[str, Mapping[str, str]]:
    """For each node, the last one further up of each name that is there more than once."""
    counts = Counter(map(_words.called, order))
    nearest: dict[str, str] = {}
    found = {}
    for node in order:
        found[node.id] = dict(nearest)
        name = _words.called(node)
        if counts[name] > 1:
            nearest[name] = node.id
    return found
