"""Parses data types: `DECIMAL(10, 2) NOT NULL`, `ROW<a INT>`, `INT ARRAY`, `INTERVAL DAY TO SECOND`.

Only the syntax is checked: the planner decides whether DECIMAL(99) exists. `SPELLINGS` maps all spellings of a type to
one name.
"""

from __future__ import annotations

from millstream.errors import nearest
from millstream.sql.keywords import RESERVED
from millstream.sql.places import problem
from millstream.sql.reader import TokenReader
from millstream.sql.syntax import TypeName
from millstream.sql.tokens import TokenKind

__all__ = ["SPELLINGS", "TypeReader"]

# Spellings of a type → its canonical name; the longest first.
SPELLINGS: dict[tuple[str, ...], str] = {
    ("CHARACTER", "VARYING"): "VARCHAR",
    ("CHAR", "VARYING"): "VARCHAR",
    ("BINARY", "VARYING"): "VARBINARY",
    ("DOUBLE", "PRECISION"): "DOUBLE",
    ("CHARACTER",): "CHAR",
    ("CHAR",): "CHAR",
    ("VARCHAR",): "VARCHAR",
    ("STRING",): "STRING",
    ("BOOLEAN",): "BOOLEAN",
    ("BINARY",): "BINARY",
    ("VARBINARY",): "VARBINARY",
    ("BYTES",): "BYTES",
    ("DECIMAL",): "DECIMAL",
    ("DEC",): "DECIMAL",
    ("NUMERIC",): "DECIMAL",
    ("TINYINT",): "TINYINT",
    ("SMALLINT",): "SMALLINT",
    ("INT",): "INT",
    ("INTEGER",): "INT",
    ("BIGINT",): "BIGINT",
    ("FLOAT",): "FLOAT",
    ("REAL",): "FLOAT",
    ("DOUBLE",): "DOUBLE",
    ("DATE",): "DATE",
    ("TIME",): "TIME",
    ("TIMESTAMP_LTZ",): "TIMESTAMP_LTZ",
    ("TIMESTAMP",): "TIMESTAMP",
    ("VARIANT",): "VARIANT",
    ("BITMAP",): "BITMAP",
    ("DESCRIPTOR",): "DESCRIPTOR",
    ("NULL",): "NULL",
}
_NESTED = ("ARRAY", "MULTISET", "MAP", "ROW", "RAW", "STRUCTURED", "INTERVAL")
_ALIEN = {
    "TEXT": "STRING",
    "LONG": "BIGINT",
    "BOOL": "BOOLEAN",
    "NUMBER": "DECIMAL",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP_LTZ",
    "SERIAL": "BIGINT",
    "INT8": "BIGINT",
    "INT4": "INT",
    "INT64": "BIGINT",
    "INT32": "INT",
    "UUID": "STRING",
    "JSON": "STRING",
    "STRUCT": "ROW",
    "BLOB": "BYTES",
    "CLOB": "STRING",
    "NVARCHAR": "VARCHAR",
}


class TypeReader(TokenReader):
    """Parses data types."""

    def type_name(self) -> TypeName:
        """A type with all its suffixes: `INT NOT NULL ARRAY NOT NULL`."""
        start = self.token.start
        self.enter()
        read = self._nullability(self._plain_type(), start)
        self.leave()
        while self.at("ARRAY", "MULTISET"):
            read = self._nullability(TypeName(self.take().word, elements=(read,)), start)
        return read

    def _nullability(self, read: TypeName, start: int) -> TypeName:
        nullable = True
        if self.accept("NOT"):
            self.expect("NULL")
            nullable = False
        elif self.ahead().word != "ON":  # JSON_VALUE(… RETURNING STRING NULL ON EMPTY)
            self.accept("NULL")
        return TypeName(
            read.name, read.arguments, read.elements, read.fields, read.comments, nullable, span=self.since(start)
        )

    def _plain_type(self) -> TypeName:
        word = self.token.word
        if word in ("ARRAY", "MULTISET", "MAP") and self.ahead().word == "<":
            return self._collection(self.take().word)
        if word == "ROW":
            return self._row()
        if word == "RAW":
            return self._raw()
        if word == "STRUCTURED":
            return self._structured()
        if word == "INTERVAL":
            return self._interval_type()
        for spelling, name in SPELLINGS.items():
            if word == spelling[0] and (len(spelling) == 1 or self.ahead().word == spelling[1]):
                for _ in spelling:
                    self.take()
                return self._with_arguments(name)
        raise self._unknown_type()

    def _with_arguments(self, name: str) -> TypeName:
        arguments: tuple[int, ...] = ()
        if self.at("("):
            arguments = self.listed(lambda: self.whole_number("a whole number"))
        if name == "TIMESTAMP" and self.at("WITH", "WITHOUT"):
            local = self.accept("WITH", "LOCAL", "TIME", "ZONE")
            if not local and self.at("WITH"):
                raise problem(
                    "TIMESTAMP WITH TIME ZONE is not supported. Write TIMESTAMP WITH LOCAL TIME ZONE, or TIMESTAMP_LTZ",
                    self.span_of(self.token),
                )
            if not local:
                self.expect("WITHOUT", "TIME", "ZONE")
            name = "TIMESTAMP_LTZ" if local else "TIMESTAMP"
        elif name == "TIME" and self.accept("WITHOUT"):
            self.expect("TIME", "ZONE")
        return TypeName(name, arguments)

    def _collection(self, name: str) -> TypeName:
        self.opening("<", ">")
        elements = [self.type_name()]
        if name == "MAP":
            if not self.accept(","):
                self.fail(expected=", and the type of the values")
            elements.append(self.type_name())
        self.close()
        return TypeName(name, elements=tuple(elements))

    def _row(self) -> TypeName:
        """ROW<a INT, b STRING 'comment'>, or with round parentheses."""
        self.take()
        if self.token.word == "<>":
            self.take()
            return TypeName("ROW")
        closing = ">" if self.at("<") else ")"
        self.opening("<" if closing == ">" else "(", closing)
        fields: list[str] = []
        types: list[TypeName] = []
        comments: list[str | None] = []
        while not (not fields and self.at(closing)):
            fields.append(self.name("a field's name"))
            types.append(self.type_name())
            comments.append(self.take().value if self.token.kind is TokenKind.TEXT else None)
            if not self.accept(","):
                break
        self.close()
        return TypeName("ROW", elements=tuple(types), fields=tuple(fields), comments=tuple(comments))

    def _raw(self) -> TypeName:
        """RAW('class', 'serializer'): stored as text, because Java classes are not interpreted."""
        self.take()
        comments: tuple[str | None, ...] = ()
        if self.at("("):
            comments = self.listed(self.plain_text)
        return TypeName("RAW", comments=comments)

    def _structured(self) -> TypeName:
        """STRUCTURED<'class', a INT, …>."""
        self.take()
        self.opening("<", ">")
        class_name = self.plain_text("the class in single quotes")
        fields: list[str] = []
        types: list[TypeName] = []
        while self.accept(","):
            fields.append(self.name("a field's name"))
            types.append(self.type_name())
        self.close()
        return TypeName("STRUCTURED", elements=tuple(types), fields=tuple(fields), comments=(class_name,))

    def _interval_type(self) -> TypeName:
        """INTERVAL DAY(3) TO SECOND(6)."""
        self.take()
        first = self.expect_one("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
        arguments = list(self.listed(lambda: self.whole_number("a precision"))) if self.at("(") else []
        name = f"INTERVAL {first}"
        if self.accept("TO"):
            name += f" TO {self.expect_one('MONTH', 'HOUR', 'MINUTE', 'SECOND')}"
            if self.at("("):
                arguments += self.listed(lambda: self.whole_number("a precision"))
        return TypeName(name, tuple(arguments))

    def _unknown_type(self) -> Exception:
        token = self.token
        if token.kind is not TokenKind.WORD or (token.word in RESERVED and token.word not in _ALIEN):
            self.fail(expected="a data type")
        likely = _ALIEN.get(token.word) or nearest(token.word, [words[0] for words in SPELLINGS] + list(_NESTED), 0.6)
        hint = f". Did you mean {likely}?" if likely else ""
        return problem(f"{token.value!r} is not a data type{hint}", self.span_of(token))
