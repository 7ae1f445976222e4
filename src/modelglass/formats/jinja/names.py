"""Names that a Jinja template uses without having assigned them: others give them their values.

An assignment counts for what comes after it, in the same block and in the blocks inside of that; where all
branches of a condition assign a name, it counts for what comes after the condition, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes

_Section = tuple[list[nodes.Node], bool]  # parts of a node, and whether they are a block of their own


def free_names(tree: nodes.Node) -> set[str]:
    """Names that are used where the template has not assigned them, or not on every way there."""
    return _Blocks().free_in(tree)


class _Blocks:
    def __init__(self) -> None:
        self._outer: list[int | None] = [None]  # block -> the one around it
        self._assigned: dict[str, set[int]] = {}  # name -> blocks in which it is
        self._names: list[set[str]] = [set()]  # block -> names that are assigned in it
        self._free: set[str] = set()

    def free_in(self, tree: nodes.Node) -> set[str]:
        # A template can be deeper than calls may be. A tuple of blocks stands for the end of a condition.
        pending: list[tuple[nodes.Node | tuple[int, ...], int]] = [(tree, 0)]
        while pending:
            node, block = pending.pop()
            if isinstance(node, tuple):
                for name in set.intersection(*(self._names[each] for each in node)):
                    self._assign(name, block)
                continue
            if isinstance(node, nodes.Name):
                self._meet(node, block)
            elif isinstance(node, nodes.Macro):
                self._assign(node.name, block)
            pending.extend(reversed(list(self._below(node, block))))
        return self._free

    def _below(self, node: nodes.Node, block: int) -> Iterator[tuple[nodes.Node | tuple[int, ...], int]]:
        branches: list[int] = []
        for parts, is_block in _sections(node):
            here = self._opened(block) if is_block else block
            branches += [here] if is_block else []
            yield from ((part, here) for part in parts)
        if isinstance(node, nodes.If) and node.else_:
            yield tuple(branches), block

    def _opened(self, block: int) -> int:
        self._outer.append(block)
        self._names.append(set())
        return len(self._outer) - 1

    def _assign(self, name: str, block: int) -> None:
        self._assigned.setdefault(name, set()).add(block)
        self._names[block].add(name)

    def _meet(self, node: nodes.Name, block: int) -> None:
        if node.ctx != "load":
            self._assign(node.name, block)
            return
        places = self._assigned.get(node.name, set())
        around: int | None = block if places else None
        while around is not None and around not in places:
            around = self._outer[around]
        if around is None:
            self._free.add(node.name)


def _sections(node: nodes.Node) -> list[_Section]:
    """What is in a node, in the order in which it runs."""
    if isinstance(node, nodes.Assign):
        return [([node.node, node.target], False)]
    if isinstance(node, nodes.AssignBlock):
        return [(list(node.body), True), ([node.target], False)]
    if isinstance(node, nodes.For):
        test = [] if node.test is None else [node.test]
        return [([node.iter], False), ([node.target, *test, *node.body], True), (list(node.else_), True)]
    if isinstance(node, nodes.If):
        several: list[_Section] = []
        for each in (node, *node.elif_):
            several += [([each.test], False), (list(each.body), True)]
        return [*several, (list(node.else_), True)]
    if isinstance(node, (nodes.Macro, nodes.CallBlock)):
        called = [node.call] if isinstance(node, nodes.CallBlock) else []
        return [([*called, *node.defaults], False), ([*node.args, *node.body], True)]
    if isinstance(node, nodes.With):
        return [(list(node.values), False), ([*node.targets, *node.body], True)]
    return [(list(node.iter_child_nodes()), isinstance(node, (nodes.Block, nodes.Scope, nodes.FilterBlock)))]
