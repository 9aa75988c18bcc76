"""What lowering knows while it goes through a plan: the builder, the session, and what was lowered already.

A relation that several others read is lowered once. What comes of one is a `Lowered`: the nodes whose output together
are its rows (more than one behind a UNION ALL), and the row type they have. Names in it are made unique: a join may
give two columns one name, a row of Arrow may not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.common.options.quantities import parse_duration_ms
from millstream.errors import LATER, ConfigurationError, NotYetError
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.graph.builder import GraphBuilder
from millstream.graph.nodes import Edge, Node, Operation
from millstream.graph.site import here
from millstream.graph.table_nodes import GroupAggregate, TableSession
from millstream.planner.meanings import PlanMeanings
from millstream.planner.plan_text import physical_line
from millstream.planner.relations import Relation
from millstream.planner.row_names import named_row
from millstream.planner.session import PlannerSession
from millstream.records.table_type import TableRowType

__all__ = ["Lowered", "Lowering", "Rule", "named_row"]


@dataclass(frozen=True)
class Lowered:
    """The rows of a relation in the graph."""

    nodes: tuple[int, ...]
    row_type: RowType

    @property
    def types(self) -> tuple[DataType, ...]:
        return self.row_type.types


Rule = Callable[[Any, "Lowering"], Lowered]


class Lowering:
    """One plan on its way into one graph."""

    def __init__(self, builder: GraphBuilder, session: PlannerSession, rules: Mapping[type[Relation], Rule]) -> None:
        self.builder = builder
        self.session = session
        self._rules = rules
        self.meanings = PlanMeanings(session)
        self._site = here()
        self._lowered: dict[int, tuple[Relation, Lowered]] = {}
        self._changing: set[int] = set()
        self.table_session = TableSession(
            zone=session.zone, catalog=session.catalog, database=session.database, options=dict(session.config)
        )

    def lowered(self, relation: Relation) -> Lowered:
        """The nodes of a relation; those it was given before, if it was."""
        known = self._lowered.get(id(relation))
        if known is not None:
            return known[1]
        rule = self._rules.get(type(relation))
        if rule is None:
            raise NotYetError.of(type(relation).__name__, LATER)
        before = len(self.builder.nodes)
        made = rule(relation, self)
        if made.nodes[-1] > before:  # a node of its own: plans show what it does, as EXPLAIN says it
            self.builder.amend(made.nodes[-1], description=physical_line(relation))
        self._lowered[id(relation)] = (relation, made)  # the relation too: an id is free when its object is gone
        return made

    def add(
        self, operation: Operation, name: str, inputs: Sequence[int], row_type: RowType | None, **attributes: Any
    ) -> Node:
        """A node that reads these ones."""
        attributes.setdefault("parallelism", self.whole_number("table.exec.resource.default-parallelism"))
        changing = [source for source in inputs if source in self._changing]
        if changing and not isinstance(operation, GroupAggregate):
            attributes["parallelism"] = self.builder.nodes[changing[0]].parallelism
        node = self.builder.add(
            operation,
            name,
            inputs=tuple(Edge(source) for source in inputs),
            output_type=None if row_type is None else TableRowType(row_type),
            site=self._site,
            **attributes,
        )
        if changing:
            self.let_change(node.id)
        return node

    def let_change(self, node: int) -> None:
        """Rows of this node are taken away, too. Then the order of two rows tells: what works on them goes on in the
        same tasks, up to the sink, or to the next exchange by key."""
        self._changing.add(node)

    def is_changing(self, rows: Lowered) -> bool:
        """Whether some of the rows are taken away."""
        return any(node in self._changing for node in rows.nodes)

    def added(
        self, operation: Operation, name: str, inputs: Sequence[int], row_type: RowType, **attributes: Any
    ) -> Lowered:
        """The same, as the rows of a relation."""
        return Lowered((self.add(operation, name, inputs, row_type, **attributes).id,), row_type)

    def uid_for(self, relation: Relation) -> dict[str, Any]:
        """Attributes of the node that keeps the state of a relation: what it means, and its uid, which the plan's shape
        gave it, so nobody is asked to give one. Two plans may go into one graph; the second one's are numbered."""
        if relation.uid is None:
            return {}
        uid, number = relation.uid, 1
        while self.builder.has_uid(uid):
            number += 1
            uid = f"{relation.uid}-{number}"
        return {"uid": uid, "meaning": self.meanings.of(relation)}

    def option(self, name: str) -> str | None:
        """What the session says of an option."""
        return self.session.config.get(name)

    def whole_number(self, name: str, options: Mapping[str, str] | None = None) -> int | None:
        """An option that is a number of at least 1; None where it is not set, or less."""
        text = (self.session.config if options is None else options).get(name)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            raise ConfigurationError(f"'{name}' is {text!r}, expected a whole number. Set it to one") from None
        return number if number >= 1 else None

    def duration_ms(self, name: str, options: Mapping[str, str] | None = None) -> int | None:
        """An option that is a length of time; None where it is not set, or 0."""
        text = (self.session.config if options is None else options).get(name)
        if text is None:
            return None
        try:
            return parse_duration_ms(text) or None
        except ConfigurationError as error:
            raise ConfigurationError(f"'{name}' is {text!r}: {error.message}") from None
