r"""Shows characters that a terminal or a page would obey or hide: they become `\u001b`, the escape that JSON has, too.

Text from objects, files and other programs may hold control characters (of both sets, C0 and C1), marks that turn the direction of
writing, and characters without width. Printed as they are, they could change what the reader believes to see.
"""

import re

_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, without tab and newline
    "\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # directions, no width, separators
    "\ud800-\udfff"  # bytes that are no text
    "\U000e0000-\U000e007f"  # tags
)
_hidden = re.compile(f"[{_HIDDEN}]")
_hidden_or_layout = re.compile(f"[{_HIDDEN}\t\n]")


def visible(text: str) -> str:
    """The text with hidden characters escaped; its lines and tabs stay."""
    return _hidden.sub(_escape, text)


def visible_on_one_line(text: str) -> str:
    """The same for a text that must not begin a new line or column, such as a cell of a table."""
    return _hidden_or_layout.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
