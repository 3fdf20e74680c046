"""The SQLite file: its tables, and every statement that reads or changes them.

`versions` holds every value once, under a sequence number that is revision * 65536 + position in the commit, so rows in
row order are history in order. `current` points each living key at its newest version. `expiry` says which keys vanish
by themselves. A version without value is a deletion.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from dray.store.errors import StoreError
from dray.store.interface import Change, Entry

SCHEMA_VERSION = 1
_POSITION_BITS = 16
MAX_OPERATIONS = 1 << _POSITION_BITS
# Sorts after every key that continues a prefix.
_LAST = "\U0010ffff"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS numbers (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS versions (
    seq INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB, created INTEGER NOT NULL, previous INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS versions_by_key ON versions (key, seq);
CREATE TABLE IF NOT EXISTS current (key TEXT PRIMARY KEY, seq INTEGER NOT NULL, created INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS expiry (key TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO numbers VALUES ('schema', 1), ('revision', 0), ('compacted', 0), ('swept', 0);
"""


# Reading through the page tables spares a copy: long lists take two thirds of the time.
_MAPPED_BYTES = 64 * 2**20


def connect_writer(path: Path) -> sqlite3.Connection:
    """Maps nothing: forgetting the past passes over the whole file, and every page it met would count as our memory."""
    return _connect(path, mapped_bytes=0)


def connect_reader(path: Path) -> sqlite3.Connection:
    return _connect(path, _MAPPED_BYTES)


def connect_to_read_only(path: Path) -> sqlite3.Connection:
    """A file that another process may be writing. It must exist, and nothing is changed in it."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
    connection.execute("PRAGMA query_only=1")
    return connection


def _connect(path: Path, mapped_bytes: int) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA cache_size=-8192")
    connection.execute(f"PRAGMA mmap_size={mapped_bytes}")
    connection.execute("PRAGMA wal_autocheckpoint=4000")
    return connection


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new file; refuse a file of a later or foreign layout."""
    if names(connection):
        check_layout(connection, path)
    connection.executescript(f"BEGIN;{_SCHEMA}COMMIT;")


def check_layout(connection: sqlite3.Connection, path: Path) -> None:
    if "numbers" not in names(connection):
        raise StoreError(f"{path} is an SQLite file of something else")
    found = number(connection, "schema")
    if found > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer release of dray (layout {found}, this one knows {SCHEMA_VERSION}); "
            "start that release, or restore a backup that this one can read"
        )


def names(connection: sqlite3.Connection) -> set[str]:
    """Of the tables in the file."""
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def number(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute("SELECT value FROM numbers WHERE name = ?", (name,)).fetchone()[0])


def set_number(connection: sqlite3.Connection, name: str, value: int) -> None:
    connection.execute("UPDATE numbers SET value = ? WHERE name = ?", (value, name))


def revision_of(seq: int) -> int:
    return seq >> _POSITION_BITS


def first_seq(revision: int) -> int:
    return revision << _POSITION_BITS


# --- reading ---------------------------------------------------------------------------------------------------------

_GET = """SELECT c.key, v.value, c.seq, c.created FROM current c JOIN versions v ON v.seq = c.seq WHERE c.key = ?"""
_LIST = """SELECT c.key, v.value, c.seq, c.created FROM current c JOIN versions v ON v.seq = c.seq
    WHERE c.key >= ? AND c.key > ? AND c.key < ? ORDER BY c.key LIMIT ?"""
_COUNT = "SELECT count(*) FROM current WHERE key >= ? AND key > ? AND key < ?"
# The newest version at or before a moment: no later one of the same key is at or before it.
_AT = """FROM versions v WHERE v.key >= ? AND v.key > ? AND v.key < ? AND v.seq < ? AND v.value IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM versions n WHERE n.key = v.key AND n.seq > v.seq AND n.seq < ?)"""
_LIST_AT = f"SELECT v.key, v.value, v.seq, v.created {_AT} ORDER BY v.key LIMIT ?"
_COUNT_AT = f"SELECT count(*) {_AT}"
_REPLAY = """SELECT v.key, v.seq, v.value, v.created, p.value, v.previous FROM versions v
    LEFT JOIN versions p ON p.seq = v.previous
    WHERE v.seq >= ? AND v.seq < ? ORDER BY v.seq LIMIT ?"""

# key, value, sequence number, revision of its creation
Row = tuple[str, bytes, int, int]


def entry_of(row: Row) -> Entry:
    return Entry(row[0], row[1], revision_of(row[2]), row[3])


def read_entries(
    connection: sqlite3.Connection, prefix: str, start_after: str, limit: int, revision: int
) -> Iterator[Entry]:
    """Entries of a key range, now (`revision` 0) or as they were; `limit` -1 means all."""
    span = (prefix, start_after, prefix + _LAST)
    if not revision:
        rows = connection.execute(_LIST, (*span, limit))
    else:
        end = first_seq(revision + 1)
        rows = connection.execute(_LIST_AT, (*span, end, end, limit))
    return map(entry_of, rows)


def count_entries(connection: sqlite3.Connection, prefix: str, start_after: str, revision: int) -> int:
    span = (prefix, start_after, prefix + _LAST)
    if not revision:
        return int(connection.execute(_COUNT, span).fetchone()[0])
    end = first_seq(revision + 1)
    return int(connection.execute(_COUNT_AT, (*span, end, end)).fetchone()[0])


def read_changes(connection: sqlite3.Connection, from_seq: int, to_seq: int, limit: int) -> list[tuple[int, Change]]:
    """Changes with their sequence numbers, oldest first."""
    found = []
    for key, seq, value, created, previous, previous_seq in connection.execute(_REPLAY, (from_seq, to_seq, limit)):
        found.append((seq, Change(key, revision_of(seq), value, previous, revision_of(previous_seq), created)))
    return found


# --- writing ---------------------------------------------------------------------------------------------------------


def read_row(connection: sqlite3.Connection, key: str) -> Row | None:
    """The current value of a key."""
    row: Row | None = connection.execute(_GET, (key,)).fetchone()
    return row


def revision_of_row(row: Row | None) -> int:
    return revision_of(row[2]) if row else 0


# sequence number, key, value, revision of its creation, sequence number of the version before
Version = tuple[int, str, bytes | None, int, int]


class Writes:
    """Changes that are decided and go into the file together: one statement for each table, not for each change."""

    __slots__ = ("_versions", "current")

    def __init__(self) -> None:
        self._versions: list[Version] = []
        # What `read_row` will find.
        self.current: dict[str, Row | None] = {}

    def put(self, revision: int, position: int, key: str, value: bytes | None, old: Row | None) -> Change | None:
        """A value in place of `old`, or (None) the key deleted; answers None if there was nothing to delete."""
        if old is None and value is None:
            return None
        old_value, old_seq, created = (old[1], old[2], old[3]) if old else (None, 0, revision)
        seq = first_seq(revision) + position
        self._versions.append((seq, key, value, created, old_seq))
        self.current[key] = None if value is None else (key, value, seq, created)
        return Change(key, revision, value, old_value, revision_of(old_seq), created)

    def write(self, connection: sqlite3.Connection) -> None:
        connection.executemany("INSERT INTO versions VALUES (?, ?, ?, ?, ?)", self._versions)
        living = [(row[0], row[2], row[3]) for row in self.current.values() if row]
        gone = [(key,) for key, row in self.current.items() if row is None]
        connection.executemany("INSERT OR REPLACE INTO current VALUES (?, ?, ?)", living)
        connection.executemany("DELETE FROM current WHERE key = ?", gone)


def forget_history(connection: sqlite3.Connection, revision: int, limit: int) -> bool:
    """Drop up to `limit` versions that were replaced or deleted at `revision`; False when none is left.

    Every change up to `revision` makes its predecessor forgettable, and itself if it is a deletion. The newest version of
    a living key stays: lists at later revisions and later changes refer to it. `swept` remembers how far this came, so
    the work is that of the changes since last time and goes on after a crash.
    """
    swept = number(connection, "swept")
    rows: Sequence[tuple[int, int, bool]] = connection.execute(
        "SELECT seq, previous, value IS NULL FROM versions WHERE seq > ? AND seq < ? ORDER BY seq LIMIT ?",
        (swept, first_seq(revision + 1), limit),
    ).fetchall()
    gone = [(previous,) for _, previous, _ in rows if previous]
    gone += [(seq,) for seq, _, is_deletion in rows if is_deletion]
    connection.executemany("DELETE FROM versions WHERE seq = ?", gone)
    if rows:
        set_number(connection, "swept", rows[-1][0])
    return len(rows) == limit


def set_expiry(connection: sqlite3.Connection, key: str, at: int | None) -> None:
    if at is None:
        connection.execute("DELETE FROM expiry WHERE key = ?", (key,))
    else:
        connection.execute("INSERT OR REPLACE INTO expiry VALUES (?, ?)", (key, at))


def read_expiries(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(connection.execute("SELECT key, at FROM expiry").fetchall())


def replace_expiries(connection: sqlite3.Connection, expiries: dict[str, int]) -> None:
    connection.execute("DELETE FROM expiry")
    connection.executemany("INSERT INTO expiry VALUES (?, ?)", expiries.items())


# --- whole files, for backups ----------------------------------------------------------------------------------------

# sequence number, key, value, revision of its creation
StoredVersion = tuple[int, str, bytes | None, int]
_CURRENT = "SELECT c.seq, c.key, v.value, c.created FROM current c JOIN versions v ON v.seq = c.seq"


def read_current(connection: sqlite3.Connection) -> Iterator[StoredVersion]:
    return connection.execute(_CURRENT)


def read_oldest(connection: sqlite3.Connection, limit: int) -> list[Entry]:
    """Living keys, those that have not been written for the longest time first."""
    rows = connection.execute(f"{_CURRENT} ORDER BY c.seq LIMIT ?", (limit,))
    return [Entry(key, value, revision_of(seq), created) for seq, key, value, created in rows]


def read_since(connection: sqlite3.Connection, after: int) -> Iterator[StoredVersion]:
    sql = "SELECT seq, key, value, created FROM versions WHERE seq >= ? ORDER BY seq"
    return connection.execute(sql, (first_seq(after + 1),))


def read_versions_at(connection: sqlite3.Connection, revision: int) -> Iterator[tuple[int, str, bytes, int]]:
    """What lived at a revision, oldest first."""
    end = first_seq(revision + 1)
    sql = f"SELECT v.seq, v.key, v.value, v.created {_AT} ORDER BY v.seq"
    return connection.execute(sql, ("", "", _LAST, end, end))


def read_revisions(connection: sqlite3.Connection) -> dict[str, int]:
    """When each living key was last written."""
    return {key: revision_of(seq) for key, seq in connection.execute("SELECT key, seq FROM current")}


def enter_version(connection: sqlite3.Connection, seq: int, key: str, value: bytes | None, created: int) -> None:
    """A value, or (None) a deletion, with the number that it has elsewhere."""
    connection.execute("INSERT INTO versions VALUES (?, ?, ?, ?, 0)", (seq, key, value, created))
    if value is None:
        connection.execute("DELETE FROM current WHERE key = ?", (key,))
    else:
        connection.execute("INSERT OR REPLACE INTO current VALUES (?, ?, ?)", (key, seq, created))
