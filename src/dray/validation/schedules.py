"""The schedules of CronJobs: five fields such as `*/5 * * * *`, or a word such as `@hourly`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dray.api.names import byte_length

_WORDS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY = "@every "
_is_number = re.compile(r"[+-]?[0-9]+", re.ASCII).fullmatch
_is_duration = re.compile(r"[+-]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)", re.ASCII).fullmatch
_LARGEST = 2**63 - 1
# Longer ones are refused unread.
_LONGEST = 1024


@dataclass(frozen=True, slots=True)
class _Field:
    least: int
    most: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        """A number, or a name that stands for one."""
        if (name := text.lower()) in self.names:
            return self.least + self.names.index(name)
        return _number(text)


_FIELDS = (
    _Field(0, 59),
    _Field(0, 23),
    _Field(1, 31),
    _Field(1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    _Field(0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)


class _BadSchedule(Exception):
    """What is wrong, in the words that clients know."""


def schedule_problem(schedule: str) -> str:
    """Why this is no schedule; nothing if it is one."""
    if byte_length(schedule) > _LONGEST:
        return f"may not be more than {_LONGEST} bytes"
    if schedule.startswith(("TZ=", "CRON_TZ=")):
        # The zone is refused, or was stored by an earlier version.
        schedule = schedule.partition(" ")[2].strip()
    try:
        if schedule.startswith("@"):
            _check_word(schedule)
        else:
            _check_fields(schedule.split())
    except _BadSchedule as problem:
        return str(problem)
    return ""


def _check_word(schedule: str) -> None:
    if schedule.startswith(_EVERY):
        duration = schedule.removeprefix(_EVERY)
        if not _is_duration(duration):
            raise _BadSchedule(f'failed to parse duration {schedule}: time: invalid duration "{duration}"')
    elif schedule not in _WORDS:
        raise _BadSchedule(f"unrecognized descriptor: {schedule}")


def _check_fields(texts: list[str]) -> None:
    if len(texts) != len(_FIELDS):
        raise _BadSchedule(f"expected exactly 5 fields, found {len(texts)}: [{' '.join(texts)}]")
    for text, field in zip(texts, _FIELDS, strict=True):
        for part in text.split(","):
            if part:
                _check_range(part, field)


def _check_range(text: str, field: _Field) -> None:
    limits, *steps = text.split("/")
    low, *high = limits.split("-")
    if low in ("*", "?"):
        start, end = field.least, field.most
    else:
        start = end = field.number(low)
        if len(high) > 1:
            raise _BadSchedule(f"too many hyphens: {text}")
        if high:
            end = field.number(high[0])
    if len(steps) > 1:
        raise _BadSchedule(f"too many slashes: {text}")
    step = _number(steps[0]) if steps else 1
    if steps and not high:
        end = field.most
    if start < field.least:
        raise _BadSchedule(f"beginning of range ({start}) below minimum ({field.least}): {text}")
    if end > field.most:
        raise _BadSchedule(f"end of range ({end}) above maximum ({field.most}): {text}")
    if start > end:
        raise _BadSchedule(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise _BadSchedule(f"step of range should be a positive number: {text}")


def _number(text: str) -> int:
    problem = "" if _is_number(text) else "invalid syntax"
    number = 0 if problem else int(text)
    if abs(number) > _LARGEST:
        problem = "value out of range"
    if problem:
        raise _BadSchedule(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": {problem}')
    if number < 0:
        raise _BadSchedule(f"negative number ({number}) not allowed: {text}")
    return number
