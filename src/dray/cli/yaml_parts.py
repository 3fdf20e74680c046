"""Large YAML files in pieces, so that a dump of a hundred megabytes is read an object at a time."""

import re
from collections.abc import Iterator

# Below this a file is read as a whole; above it is worth the cutting.
WORTH_CUTTING = 1_000_000


def parts_of_yaml(data: bytes) -> Iterator[bytes]:
    """Texts that say together what `data` says: one per document, and one per item of a top-level `items` list.

    kubectl prints lists with `items:` and each `- ` at the start of a line, which is where the cuts are made. A list that
    looks different comes out in one piece.
    """
    if len(data) < WORTH_CUTTING:
        yield data
        return
    for document in _documents(data):
        yield from _items(document)


def _documents(data: bytes) -> Iterator[bytes]:
    start = 0
    for separator in re.finditer(rb"^---(?=\s|$)", data, re.MULTILINE):
        yield data[start : separator.start()]
        start = separator.end()
    yield data[start:]


def _items(document: bytes) -> Iterator[bytes]:
    """Each item with everything around the list: what kind of list it is may be said before or after it."""
    begins = re.search(rb"^items:\r?\n(?=- )", document, re.MULTILINE)
    if begins is None:
        yield document
        return
    ends = re.compile(rb"^[^\s#-]", re.MULTILINE).search(document, begins.end())
    end = ends.start() if ends is not None else len(document)
    frame = document[: begins.start()] + document[end:] + b"\nitems:\n"
    bounds = [item.start() for item in re.compile(rb"^- ", re.MULTILINE).finditer(document, begins.end(), end)]
    for begin, until in zip(bounds, [*bounds[1:], end], strict=True):
        yield frame + document[begin:until]
