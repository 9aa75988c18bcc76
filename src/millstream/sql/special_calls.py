"""Functions with keywords among their arguments: EXTRACT(DAY FROM x), TRIM(LEADING 'a' FROM x), JSON_VALUE(…).

All become plain calls; the keywords become `options`:

| written | arguments | options |
|---|---|---|
| EXTRACT(unit FROM x) | x | unit |
| CEIL(x TO unit), FLOOR(x TO unit) | x | unit |
| TIMESTAMPADD(unit, n, t), TIMESTAMPDIFF(unit, a, b) | n, t | unit |
| TRIM([BOTH, LEADING or TRAILING] [c] FROM x), TRIM([side] x) | x, and c if given | side |
| POSITION(a IN b [FROM n]) | a, b, n | |
| SUBSTRING(x FROM a [FOR b]) | x, a, b | |
| OVERLAY(x PLACING y FROM a [FOR b]) | x, y, a, b | |
| CONVERT(x USING c), TRANSLATE(x USING c) | x | charset |
| JSON_EXISTS(j, p [b ON ERROR]) | j, p | on_error: TRUE, FALSE, UNKNOWN, ERROR |
| JSON_VALUE(j, p [RETURNING t] [b ON EMPTY] [b ON ERROR]) | j, p | returning, on_empty, on_error |
| JSON_QUERY(j, p [RETURNING t] [wrapper] [b ON EMPTY] [b ON ERROR]) | j, p | returning, wrapper, on_empty, on_error |
| JSON_OBJECT([KEY] k VALUE v, … [b ON NULL]), JSON_OBJECTAGG | k, v, k, v, … | on_null: NULL, ABSENT |
| JSON_ARRAY(a, … [b ON NULL]), JSON_ARRAYAGG | a, … | on_null |

`returning` is a TypeName. JSON_VALUE's behaviours are ("NULL", None), ("ERROR", None) or ("DEFAULT", value);
JSON_QUERY's are NULL, ERROR, EMPTY ARRAY and EMPTY OBJECT; a wrapper is WITHOUT, CONDITIONAL or UNCONDITIONAL.
Omitted clauses are not in the options.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.sql.keywords import UNITS, unit_of
from millstream.sql.places import problem
from millstream.sql.syntax import Call, Expression, OrderItem
from millstream.sql.tokens import TokenKind
from millstream.sql.windows import WindowReader

__all__ = ["SPECIAL_CALLS", "SpecialCallReader"]

Options = list[tuple[str, Any]]


class SpecialCallReader(WindowReader):
    """Parses calls with keywords inside. Each method starts after the opening parenthesis."""

    def special_call(self, name: str) -> Expression:
        """Parses NAME(…) with the method for this name."""
        start = self.take()
        self.opening()
        self.enter()
        arguments, options, order = self._special_readers()[name]()
        self.leave()
        self.close()
        call = Call(start.value, tuple(arguments), tuple(options), span=self.since(start.start))
        return self.aggregated(call, order_by=order)

    def is_special_call(self, word: str) -> bool:
        return word in SPECIAL_CALLS and self.ahead().word == "("

    def _special_readers(
        self,
    ) -> dict[str, Callable[[], tuple[list[Expression], Options, tuple[OrderItem, ...]]]]:
        return {
            "EXTRACT": self._extract,
            "CEIL": self._rounded_to_unit,
            "CEILING": self._rounded_to_unit,
            "FLOOR": self._rounded_to_unit,
            "TIMESTAMPADD": self._with_unit_first,
            "TIMESTAMPDIFF": self._with_unit_first,
            "TRIM": self._trim,
            "POSITION": self._position,
            "SUBSTRING": self._substring,
            "OVERLAY": self._overlay,
            "CONVERT": self._transcoded,
            "TRANSLATE": self._transcoded,
            "JSON_EXISTS": self._json_exists,
            "JSON_VALUE": self._json_value,
            "JSON_QUERY": self._json_query,
            "JSON_OBJECT": self._json_object,
            "JSON_OBJECTAGG": self._json_object,
            "JSON_ARRAY": self._json_array,
            "JSON_ARRAYAGG": self._json_array,
        }

    # --- times --------------------------------------------------------------------------------------------------------

    def unit(self) -> str:
        """A unit of time."""
        unit = unit_of(self.token.word)
        if self.token.kind is TokenKind.TEXT and unit_of(self.token.value.upper()):
            raise problem(f"a unit of time has no quotes: {self.token.value.upper()}", self.span_of(self.token))
        if unit is None:
            self._possibilities.extend(UNITS)
            self.fail(expected="a unit of time (YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, …)")
        self.take()
        return unit

    def _extract(self) -> tuple[list[Expression], Options, tuple[OrderItem, ...]]:
        unit = self.unit()
        self.expect("FROM")
        return [self.expression()], [("unit", unit)], ()

    def _rounded_to_unit(self) -> tuple[list[Expression], Options, tuple[OrderItem, ...]]:
        arguments = list(self.separated(self.expression))
        options: Options = [("unit", self.unit())] if self.accept("TO") else []
        return arguments, options, ()

    def _with_unit_first(self) -> tuple[list[Expression], Options, tuple[OrderItem, ...]]:
        unit = self.unit()
        self.expect(",")
        return list(self.separated(self.expression)), [("unit", unit)], ()

    # --- strings ------------------------------------------------------------------------------------------------------

    def _trim(self) -> tuple[list[Expression], Options, tuple[OrderItem, ...]]:
        side = self.accept_one("BOTH", "LEADING", "TRAILING")
        options: Options = [("side", side)] if side else []
        if side and self.accept("FROM"):
            return [self.expression()], options, ()
        first = self.expression()
        if self.accept("FROM"):
            return [self.expression(), first], options or [("side", "BOTH")], ()
        if side and self.at(","):
            self.fail(expected="FROM")
        arguments = [first]
        while self.accept(","):
            arguments.append(self.expression())
        return arguments, options, ()

    def _position(self) -> tuple[list[Expression], Options, tuple[OrderItem, ...]]:
        # IN would be parsed as an operator, so the preceding expression must bind tighter.
        arguments = [self.expression(_ABOVE_IN)]
        if self.accept("IN"):
            arguments.append(self.expression(_ABOVE_IN))
            if self.accept("FROM"):
                arguments.append(self.expression())
            return arguments, [], ()
        if not self.at(","):
            self.fail(expected="IN")
        while self.accept(","):
            arguments.append(self.expression())
        return arguments, [], ()

    def _substring(self) -> tuple[list[Expression], Options, tuple[OrderItem, ...]]:
        arguments = [self.expression()]
        if self.accept("FROM"):
            arguments.append(self.expression())
            if self.accept("FOR"):
                arguments.append(self.expression())
            return arguments, [], ()
        if not self.at(","):
            self.fail(expected="FROM or ,")
        while self.accept(","):
            arguments.append(self.expression())
        return arguments, [], ()

    def _overlay(self) -> tuple[list[Expression], Options, tuple[OrderItem, ...]]:
        arguments = [self.expression()]
        if not self.accept("PLACING"):
            while self.accept(","):
                arguments.append(self.expression())
            if len(arguments) == 1:
                self.fail(expected="PLACING")
            return arguments, [], ()
        arguments.append(self.expression())
        self.expect("FROM")
        arguments.append(self.expression())
        if self.accept("FOR"):
            arguments.append(self.expression())
        return arguments, [], ()

    def _transcoded(self) -> tuple[list[Expression], Options, tuple[OrderItem, ...]]:
        arguments = list(self.separated(self.expression))
        options: Options = []
        if len(arguments) == 1 and self.accept("USING"):
            options.append(("charset", self.name("a character set")))
        return arguments, options, ()

    # --- JSON ---------------------------------------------------------------------------------------------------------

    def _json_path(self) -> list[Expression]:
        document = self.expression()
        if not self.accept(","):
            self.fail(expected=", and a path like '$.a'")
        return [document, self.expression()]

    def _json_exists(self) -> tuple[list[Expression], Options, tuple[OrderItem, ...]]:
        arguments = self._json_path()
        behaviour = self.accept_one("TRUE", "FALSE", "UNKNOWN", "ERROR")
        if behaviour is None:
            return arguments, [], ()
        self.expect("ON", "ERROR")
        return arguments, [("on_error", behaviour)], ()

    def _json_value(self) -> tuple[list[Expression], Options, tuple[OrderItem, ...]]:
        arguments = self._json_path()
        options: Options = []
        if self.accept("RETURNING"):
            options.append(("returning", self.type_name()))
        while (behaviour := self.accept_one("NULL", "ERROR", "DEFAULT")) is not None:
            value = self.expression() if behaviour == "DEFAULT" else None
            options.append((self._on(), (behaviour, value)))
        return arguments, options, ()

    def _json_query(self) -> tuple[list[Expression], Options, tuple[OrderItem, ...]]:
        arguments = self._json_path()
        options: Options = []
        if self.accept("RETURNING"):
            options.append(("returning", self.type_name()))
        if self.at("WITH", "WITHOUT"):
            wrapper = self.take().word
            if wrapper == "WITH":
                wrapper = self.accept_one("CONDITIONAL", "UNCONDITIONAL") or "UNCONDITIONAL"
            self.accept("ARRAY")
            self.expect("WRAPPER")
            options.append(("wrapper", wrapper))
        while (behaviour := self.accept_one("NULL", "ERROR", "EMPTY")) is not None:
            if behaviour == "EMPTY":
                behaviour = f"EMPTY {self.expect_one('ARRAY', 'OBJECT')}"
            options.append((self._on(), behaviour))
        return arguments, options, ()

    def _on(self) -> str:
        self.expect("ON")
        return f"on_{self.expect_one('EMPTY', 'ERROR').lower()}"

    def _json_object(self) -> tuple[list[Expression], Options, tuple[OrderItem, ...]]:
        arguments: list[Expression] = []
        if not self._at_on_null() and not self.at(")"):
            while True:
                if self.token.word == "KEY" and self.ahead().word not in ("VALUE", ",", ")", ":", "."):
                    self.take()
                arguments.append(self.expression())
                if self.expect_one("VALUE", ":", ","):
                    arguments.append(self.expression())
                if not self.accept(","):
                    break
        return arguments, self._on_null(), ()

    def _json_array(self) -> tuple[list[Expression], Options, tuple[OrderItem, ...]]:
        arguments: list[Expression] = []
        if not self._at_on_null() and not self.at(")"):
            arguments.extend(self.separated(self.expression))
        order = self.order_by()
        return arguments, self._on_null(), order

    def _at_on_null(self) -> bool:
        return self.token.word in ("NULL", "ABSENT") and self.ahead().word == "ON"

    def _on_null(self) -> Options:
        if not self._at_on_null():
            return []
        behaviour = self.take().word
        self.expect("ON", "NULL")
        return [("on_null", behaviour)]


_ABOVE_IN = 32
SPECIAL_CALLS = frozenset(
    {"EXTRACT", "CEIL", "CEILING", "FLOOR", "TIMESTAMPADD", "TIMESTAMPDIFF", "TRIM", "POSITION", "SUBSTRING", "OVERLAY"}
    | {"CONVERT", "TRANSLATE", "JSON_EXISTS", "JSON_VALUE", "JSON_QUERY", "JSON_OBJECT", "JSON_OBJECTAGG", "JSON_ARRAY"}
    | {"JSON_ARRAYAGG"}
)
