"""Reads fields of documents whose shape is not certain: a missing or misshapen field reads as empty."""

from typing import Any

Document = dict[str, Any]


def part(document: Any, *path: str) -> Any:
    """Whatever is at the path, or None."""
    try:
        for name in path:
            document = document.get(name)
    except AttributeError:
        return None
    return document


def mapping(document: Any, *path: str) -> Document:
    found = part(document, *path)
    return found if isinstance(found, dict) else {}


def texts(document: Any, *path: str) -> dict[str, str]:
    """A map of text to text, such as labels."""
    return {key: value for key, value in mapping(document, *path).items() if isinstance(value, str)}


def mappings(document: Any, *path: str) -> list[Document]:
    """The mappings of a list."""
    found = part(document, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def strings(document: Any, *path: str) -> list[str]:
    found = part(document, *path)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def text(document: Any, *path: str) -> str:
    found = part(document, *path)
    return found if isinstance(found, str) else ""


def labels_of(document: Any) -> dict[str, str]:
    return texts(document, "metadata", "labels")


def name_of(document: Any) -> str:
    return text(document, "metadata", "name")


def namespace_of(document: Any) -> str:
    return text(document, "metadata", "namespace")


def uid_of(document: Any) -> str:
    return text(document, "metadata", "uid")
