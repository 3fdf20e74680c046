"""Errors of decoding an object."""

from __future__ import annotations


class DecodeError(ValueError):
    """The bytes or the document are not an object of the API. Names the place as a field path or as line and column."""

    def __init__(self, message: str, *, path: str = "", line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.line = line
        self.column = column

    def __str__(self) -> str:
        if self.line is not None:
            place = f"line {self.line}" if self.column is None else f"line {self.line}, column {self.column}"
            return f"{place}: {self.message}"
        return f"{self.path}: {self.message}" if self.path else self.message

    @property
    def answer(self) -> str:
        """What an API server says to its client."""
        return str(self)


class ShapeError(DecodeError):
    """A value has another type than its field. The message is in Kubernetes' words."""

    @property
    def answer(self) -> str:
        return self.message
