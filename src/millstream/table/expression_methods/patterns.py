"""Pattern and digest functions of `Expression`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.sql.syntax import Like
from millstream.table.expression_methods.syntax_holder import SyntaxHolder, node_of

if TYPE_CHECKING:
    from millstream.table.expression import Expression

__all__ = ["PatternMethods"]


class PatternMethods(SyntaxHolder):
    """Patterns and digests."""

    def like(self, pattern: Any = None, escape: Any = None) -> Expression[Any]:
        """Whether the string matches a LIKE pattern: _ matches any character, % any string."""
        return self._made(Like(self._node, node_of(pattern), None if escape is None else node_of(escape)))

    def similar(self, pattern: Any) -> Expression[Any]:
        """Whether the string matches a SIMILAR TO pattern."""
        return self._made(Like(self._node, node_of(pattern), similar=True))

    def regexp(self, regex: Any) -> Expression[Any]:
        """Whether a regular expression matches a part of the string."""
        return self._call("REGEXP", regex)

    def regexp_count(self, regex: Any) -> Expression[Any]:
        """The number of matches."""
        return self._call("REGEXP_COUNT", regex)

    def regexp_replace(self, regex: Any, replacement: Any) -> Expression[Any]:
        """Replaces every match."""
        return self._call("REGEXP_REPLACE", regex, replacement)

    def regexp_extract(self, regex: Any, extract_index: Any = None) -> Expression[Any]:
        """A group of the first match; group 0 is the whole match."""
        return self._call("REGEXP_EXTRACT", regex, extract_index)

    def regexp_extract_all(self, regex: Any, extract_index: Any = None) -> Expression[Any]:
        """A group of each match, as an array."""
        return self._call("REGEXP_EXTRACT_ALL", regex, extract_index)

    def regexp_instr(self, regex: Any) -> Expression[Any]:
        """The position of the first match, counted from 1; 0 without a match."""
        return self._call("REGEXP_INSTR", regex)

    def regexp_substr(self, regex: Any) -> Expression[Any]:
        """The first match."""
        return self._call("REGEXP_SUBSTR", regex)

    @property
    def md5(self) -> Expression[Any]:
        """The MD5 digest, in hexadecimal digits."""
        return self._call("MD5")

    @property
    def sha1(self) -> Expression[Any]:
        """The SHA-1 digest, in hexadecimal digits."""
        return self._call("SHA1")

    @property
    def sha224(self) -> Expression[Any]:
        """The SHA-224 digest, in hexadecimal digits."""
        return self._call("SHA224")

    @property
    def sha256(self) -> Expression[Any]:
        """The SHA-256 digest, in hexadecimal digits."""
        return self._call("SHA256")

    @property
    def sha384(self) -> Expression[Any]:
        """The SHA-384 digest, in hexadecimal digits."""
        return self._call("SHA384")

    @property
    def sha512(self) -> Expression[Any]:
        """The SHA-512 digest, in hexadecimal digits."""
        return self._call("SHA512")

    def sha2(self, hash_length: Any) -> Expression[Any]:
        """The SHA-2 digest of 224, 256, 384 or 512 bits."""
        return self._call("SHA2", hash_length)
