"""The state of lowering: the builder, the session, and the relations already lowered.

A relation with several readers is lowered once. The result is a `Lowered`: the nodes whose combined output is the
relation's rows (several nodes after a UNION ALL), and their row type. Column names are unique in the row type, as Arrow
requires; a join's schema may repeat a name.
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
    """A relation's rows in the graph."""

    nodes: tuple[int, ...]
    row_type: RowType

    @property
    def types(self) -> tuple[DataType, ...]:
        return self.row_type.types


Rule = Callable[[Any, "Lowering"], Lowered]


class Lowering:
    """Lowers one plan into one graph."""

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
        """The nodes of a relation, cached."""
        known = self._lowered.get(id(relation))
        if known is not None:
            return known[1]
        rule = self._rules.get(type(relation))
        if rule is None:
            raise NotYetError.of(type(relation).__name__, LATER)
        before = len(self.builder.nodes)
        made = rule(relation, self)
        if made.nodes[-1] > before:  # a new node: plans print its relation as EXPLAIN does
            self.builder.amend(made.nodes[-1], description=physical_line(relation))
        self._lowered[id(relation)] = (relation, made)  # holds the relation: a collected object's id may be reused
        return made

    def add(
        self, operation: Operation, name: str, inputs: Sequence[int], row_type: RowType | None, **attributes: Any
    ) -> Node:
        """Adds a node with these inputs."""
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
        """Marks a node that emits retractions or deletes. Row order then matters: consumers run in the same tasks up to
        the sink or the next exchange by key."""
        self._changing.add(node)

    def is_changing(self, rows: Lowered) -> bool:
        """Whether some of the rows are retracted or deleted."""
        return any(node in self._changing for node in rows.nodes)

    def added(
        self, operation: Operation, name: str, inputs: Sequence[int], row_type: RowType, **attributes: Any
    ) -> Lowered:
        """Adds a node and returns it as a relation's rows."""
        return Lowered((self.add(operation, name, inputs, row_type, **attributes).id,), row_type)

    def uid_for(self, relation: Relation) -> dict[str, Any]:
        """Attributes of a stateful relation's node: the meaning of its state and its uid, derived from the plan's shape
        so that users need not set one. If two plans share a graph, the second one's uids are numbered."""
        if relation.uid is None:
            return {}
        uid, number = relation.uid, 1
        while self.builder.has_uid(uid):
            number += 1
            uid = f"{relation.uid}-{number}"
        return {"uid": uid, "meaning": self.meanings.of(relation)}

    def option(self, name: str) -> str | None:
        """The value of a session option."""
        return self.session.config.get(name)

    def whole_number(self, name: str, options: Mapping[str, str] | None = None) -> int | None:
        """An option that is an integer of at least 1; None if unset or less."""
        text = (self.session.config if options is None else options).get(name)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            raise ConfigurationError(f"'{name}' is {text!r}, expected a whole number. Set it to one") from None
        return number if number >= 1 else None

    def duration_ms(self, name: str, options: Mapping[str, str] | None = None) -> int | None:
        """An option that is a duration; None if unset or 0."""
        text = (self.session.config if options is None else options).get(name)
        if text is None:
            return None
        try:
            return parse_duration_ms(text) or None
        except ConfigurationError as error:
            raise ConfigurationError(f"'{name}' is {text!r}: {error.message}") from None
