"""Rules for the capacities of a device, and for the policy that limits what claims may request of a shared device."""

from __future__ import annotations

from functools import lru_cache

from dray.api.dra.consumption import ALWAYS_CONSUMED, BLOCK_OR_SHARE, CONSUMED_OR_NEVER
from dray.api.quantity import Quantity
from dray.validation.errors import Document, Errors
from dray.validation.formats import check_qualified, key_path

STRATEGIES = (ALWAYS_CONSUMED, BLOCK_OR_SHARE, CONSUMED_OR_NEVER)

MAX_VALID_VALUES = 10
_INT64_MAX = 2**63 - 1
_MILLI = 1_000_000
_NANOS = 1_000_000_000


def check_capacity(capacity: Document, path: str, errors: Errors, *, shared: bool, fractional: bool) -> None:
    for key, entry in capacity.items():
        check_qualified(key, path, errors)
        policy = entry.get("requestPolicy")
        if policy is None:
            continue
        here = f"{key_path(path, key)}.requestPolicy"
        if not shared:
            errors.forbidden(here, "allowMultipleAllocations must be true")
        else:
            _check_policy(policy, Quantity.parse(entry.get("value") or "0"), here, errors, fractional)


def _check_policy(policy: Document, capacity: Quantity, path: str, errors: Errors, fractional: bool) -> None:
    if policy.get("zeroConsumption"):
        _check_zero_consumption(policy, path, errors)
        return
    strategy = policy.get("strategy") or ALWAYS_CONSUMED
    if strategy not in STRATEGIES:
        errors.not_supported(f"{path}.strategy", strategy, STRATEGIES)
        return
    if strategy != ALWAYS_CONSUMED:
        if policy.get("default") is not None:
            errors.forbidden(f"{path}.default", f"may not be set with strategy {strategy}")
            return
        # Of the rules about values, all but those about the default.
        policy = {**policy, "default": _smallest(policy)}
    values, valid_range = policy.get("validValues") or [], policy.get("validRange")
    default = policy.get("default")
    if values and valid_range is not None:
        detail = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        errors.forbidden(path, detail)
    elif values:
        if default is None:
            errors.required(f"{path}.default", "required when validValues is defined")
        else:
            _check_values(values, Quantity.parse(default), capacity, f"{path}.validValues", errors, fractional)
    elif valid_range is not None:
        if default is None:
            errors.required(f"{path}.default", "required when validRange is defined")
        else:
            _Range(valid_range, default, capacity, f"{path}.validRange", errors, fractional).check()


def _check_zero_consumption(policy: Document, path: str, errors: Errors) -> None:
    for field in ("default", "validValues", "validRange", "strategy"):
        if policy.get(field):
            errors.forbidden(f"{path}.{field}", "may not be set with zeroConsumption")


def _smallest(policy: Document) -> str | None:
    """An amount that the policy allows, if any is."""
    values, valid_range = policy.get("validValues") or [], policy.get("validRange") or {}
    return min(values, key=Quantity.parse) if values else valid_range.get("min")


def _check_values(
    values: list[str], default: Quantity, capacity: Quantity, path: str, errors: Errors, fractional: bool
) -> None:
    amounts = [Quantity.parse(value) for value in values]
    for i in range(len(amounts) - 1):
        if amounts[i] > amounts[i + 1]:
            errors.invalid(f"{path}[{i + 1}]", values[i + 1], "values must be sorted in ascending order")
    if len(values) > MAX_VALID_VALUES:
        errors.too_many(path, len(values), MAX_VALID_VALUES)
        # Nothing in the list was compared with the default.
        errors.invalid(path, str(default), "default value is not valid according to the requestPolicy")
        return
    seen: set[object] = set()
    for i, amount in enumerate(amounts):
        if amount > capacity:
            errors.invalid(f"{path}[{i}]", values[i], f"option is larger than capacity value: {capacity}")
        mark: object = _decimal_spelling(values[i]) if fractional else amount.value()
        if mark in seen:
            errors.duplicate(f"{path}[{i}]", values[i])
        seen.add(mark)
    if default not in amounts:
        errors.invalid(path, str(default), "default value is not valid according to the requestPolicy")


@lru_cache(maxsize=1024)
def _decimal_spelling(text: str) -> tuple[int, int]:
    """The amount and the number of decimals it was written with: `1` and `1000m` are told apart, `1k` and `1000` are not."""
    number = text.lstrip("+-")
    digits = len(number) - len(number.lstrip("0123456789."))
    whole_and_fraction, suffix = number[:digits], number[digits:]
    decimals = len(whole_and_fraction.partition(".")[2])
    if suffix and suffix[0] in "eE" and len(suffix) > 1 and not suffix.endswith("i"):
        decimals -= int(suffix[1:])
    elif not suffix.endswith("i"):
        decimals -= {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}.get(suffix, 0)
    return Quantity.parse(text).nanos, max(0, min(decimals, 9))


class _Range:
    """`validRange` with the default and the capacity it has to fit."""

    def __init__(
        self, valid_range: Document, default: str, capacity: Quantity, path: str, errors: Errors, fractional: bool
    ) -> None:
        said = {"default": default, **{name: valid_range.get(name) for name in ("min", "max", "step")}}
        self.amounts = {name: Quantity.parse(text) for name, text in said.items() if text is not None}
        self.capacity, self.path, self.errors = capacity, path, errors
        # Thousandths only where somebody wrote a fraction; otherwise whole units, rounded up.
        self.in_milli = fractional and any(amount.nanos % _NANOS for amount in self.amounts.values())

    def invalid(self, name: str, amount: Quantity, detail: str) -> None:
        self.errors.invalid(f"{self.path}.{name}", str(amount), detail)

    def check(self) -> None:
        if "min" not in self.amounts:
            self.errors.required(f"{self.path}.min", "required when validRange is defined")
            return
        self._check_order()
        if self.in_milli and not self._check_milli():
            return
        if "step" in self.amounts:
            self._check_step()

    def _check_order(self) -> None:
        low, default = self.amounts["min"], self.amounts["default"]
        if low > self.capacity:
            self.invalid("min", low, f"min is larger than capacity value: {self.capacity}")
        if default < low:
            self.invalid("default", default, f"default is less than min: {low}")
        high = self.amounts.get("max")
        if high is None:
            return
        if low > high:
            self.invalid("max", low, f"min is larger than max: {high}")
        if high > self.capacity:
            self.invalid("max", high, f"max is larger than capacity value: {self.capacity}")
        if default > high:
            self.invalid("default", default, f"default is more than max: {high}")

    def _check_milli(self) -> bool:
        bad = [
            (name, amount)
            for name, amount in self.amounts.items()
            if amount.nanos % _MILLI or abs(amount.nanos // _MILLI) > _INT64_MAX
        ]
        for name, amount in bad:
            self.invalid(name, amount, "value cannot be represented as a milli value")
        return not bad

    def _check_whole(self) -> bool:
        bad = False
        for name, amount in self.amounts.items():
            if name != "step" and amount.nanos < 0:
                self.invalid(name, amount, "must be greater than or equal to 0")
                bad = True
            elif amount.value() > _INT64_MAX:
                self.invalid(name, amount, f"must not be larger than {_INT64_MAX}")
                bad = True
        return not bad

    def _check_step(self) -> None:
        low, step = self.amounts["min"], self.amounts["step"]
        if step.nanos <= 0:
            self.invalid("step", step, "must be greater than zero")
            return
        if low + step > self.capacity:
            self.invalid("step", step, f"one step {low + step} is larger than capacity value: {self.capacity}")
        if not self.in_milli and not self._check_whole():
            return
        unit = Quantity.milli if self.in_milli else Quantity.value
        for name in ("default", "max"):
            if name in self.amounts and (unit(self.amounts[name]) - unit(low)) % unit(step):
                detail = f"value is not a multiple of a given step ({step}) from ({low})"
                self.errors.invalid(f"{self.path}.step", str(self.amounts[name]), detail)
