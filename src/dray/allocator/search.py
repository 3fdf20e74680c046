"""The backtracking: lets a device enter and leave the live rules, knows none by name.

Depth first, first fit: the first complete solution in search order is the answer. A plain search would be right but may
never end. Once it has met a few dead ends, four things keep it short; none of them leaves out the first solution:

- `SearchPlan` takes requests apart that do not depend on each other, and orders equal ones;
- devices of one kind are interchangeable: after one has failed somewhere, its equals are not tried there;
- a state that has failed before, up to exchange of equal devices, is not entered again;
- `Bounds` sees early that the requests still open cannot all be served.

Errors count as outcomes: a device that would end the search in an error is its own kind.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from dray.allocator.bounds import Bounds
from dray.allocator.interchangeable import InterchangeableDevices
from dray.allocator.matches import NodeMatches
from dray.allocator.requests import ClaimProblem, ClaimRequest, Option
from dray.allocator.search_input import SearchInput
from dray.allocator.search_plan import SearchPlan
from dray.allocator.types import Deadline, FatalError, bits
from dray.api.resource import MAX_ALLOCATION_RESULTS

# Dead ends after which the search stops being plain.
PLAIN_DEAD_ENDS = 3
# Steps between two looks at the time, plain ones and those that look ahead.
STEPS_PER_LOOK = 32
EXPENSIVE_STEPS_PER_LOOK = 4
# Bits of tables that take as much memory as one failed state, some 400 bytes.
BITS_PER_STATE = 3200


class Interrupted(Exception):
    """The search stopped in the middle; `run` goes on from there."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.steps = steps


class SearchTimedOut(Interrupted):
    """The deadline passed."""


class Paused(Interrupted):
    """Others have their turn."""


class Observer(Protocol):
    """Told about every place where the search gets stuck."""

    def stuck(self, search: Search, option: Option) -> None: ...


class Frame:
    """One device to be found for one option."""

    __slots__ = ("entered", "key", "matches", "option", "ordinal", "position", "remaining", "start")

    def __init__(self, option: Option, matches: NodeMatches, ordinal: int, start: int, remaining: int) -> None:
        self.option = option
        self.matches = matches
        self.ordinal = ordinal
        self.start = start
        self.remaining = remaining
        self.position = -1
        self.key: Hashable = None
        # For a request for all devices: those that have entered.
        self.entered: list[int] = []


class Choice:
    """Alternatives of one request, tried in order."""

    __slots__ = ("current", "exceeds_limit", "key", "only_limit_exceeded", "request")

    def __init__(self, request: ClaimRequest) -> None:
        self.request = request
        self.current = -1
        # Whether the current alternative, or every alternative so far, would give the claim too many devices.
        self.exceeds_limit = False
        self.only_limit_exceeded = True
        self.key: Hashable = None


class Search:
    __slots__ = (
        "_bounds",
        "_component",
        "_dead_ends",
        "_deadline",
        "_failed_states",
        "_first_choices",
        "_is_opening",
        "_kinds",
        "_look_at",
        "_must_open",
        "_observer",
        "_plan",
        "_rules",
        "_rules_for_all",
        "_stack",
        "_turn_is_over",
        "_turns_until_look",
        "_wants_to_look_ahead",
        "chosen",
        "claim_counts",
        "claim_taken",
        "given",
        "steps",
        "taken",
    )

    def __init__(self, given: SearchInput, observer: Observer | None = None) -> None:
        self.given = given
        self._rules = given.rules
        self._rules_for_all = given.rules
        if given.problem.has_all:
            self._rules_for_all = sorted(given.rules, key=lambda rule: rule.is_late_for_all)
        # Without a plan all requests come one after another.
        self._plan: SearchPlan | None = None
        self._component = 0
        # By request: the alternative and the rank of the first device that were chosen last.
        self._first_choices: dict[int, tuple[Option, int]] = {}
        self._observer = observer
        self._deadline: Deadline | None = None
        self._turn_is_over: Deadline | None = None
        self._must_open = True
        self._is_opening = False
        self._wants_to_look_ahead = False
        self._look_at = STEPS_PER_LOOK
        self._turns_until_look = 0
        self._stack: list[Frame | Choice] = []
        self._dead_ends = 0
        self._kinds: InterchangeableDevices | None = None
        self._bounds: Bounds | None = None
        self._failed_states: set[Hashable] = set()
        self.chosen: list[tuple[Option, int]] = []
        # Devices that this attempt holds as a whole: all, and by claim.
        self.taken = 0
        self.claim_taken = [0] * len(given.problem.claims)
        self.claim_counts = [0] * len(given.problem.claims)
        self.steps = 0

    @property
    def remembered_states(self) -> int:
        """Failed states that the search keeps in memory, and tables as if they were states."""
        tables = self._bounds.bits // BITS_PER_STATE if self._bounds is not None else 0
        return len(self._failed_states) + tables

    def run(
        self, deadline: Deadline | None = None, turn_is_over: Deadline | None = None
    ) -> list[tuple[Option, int]] | None:
        """The chosen devices in booking order, or None; raises FatalError, SearchTimedOut and Paused.

        After the latter two it may be called again; every call goes at least some steps further.
        """
        self._deadline, self._turn_is_over = deadline, turn_is_over
        if not self.given.problem.requests:
            return []
        stack = self._stack
        while stack or self._must_open:
            if self._kinds is not None:
                self._look_now_and_then()
            if self._must_open:
                opened = self._open_component()
                self._must_open = False
                if not opened:
                    return None
                continue
            frame = stack[-1]
            # A search that was stopped while it opened what comes next has chosen for this frame already.
            if self._is_opening or self._advance(frame):
                self._is_opening = True
                opened_after = self._open_after(frame)
                self._is_opening = False
                if opened_after is None:
                    stack.clear()
                    self._component += 1
                    if self._plan is None or self._component == len(self._plan.components):
                        return self._in_order()
                    self._must_open = True
                elif not opened_after:
                    self._undo(frame)
                continue
            stack.pop()
            if self._dead_end(frame):
                self._unwind()
                self._must_open = self._wants_to_look_ahead = True
            elif isinstance(frame, Choice) and frame.only_limit_exceeded:
                self._leave_for_alternative(frame.request.claim)
            elif stack:
                self._undo(stack[-1])
        return None

    def _unwind(self) -> None:
        while self._stack:
            self._undo(self._stack.pop())

    def _in_order(self) -> list[tuple[Option, int]]:
        """Components are solved one after another; results come in the order of the requests."""
        if self._plan is None:
            return self.chosen
        return sorted(self.chosen, key=lambda choice: choice[0].request.index)

    # --- opening -----------------------------------------------------------------------------------------------------

    def _open_after(self, frame: Frame | Choice) -> bool | None:
        """Opens what comes next; None: nothing does, the solution is complete. False: it cannot be opened."""
        if isinstance(frame, Choice):
            return self._open_option(frame.request.options[frame.current])
        option = frame.option
        if not option.all_devices and frame.ordinal + 1 < option.count:
            return self._open_device(option, frame.ordinal + 1, self.given.rank(option, frame.position) + 1)
        following = self._following(option.request)
        return None if following is None else self._open_request(following)

    def _following(self, request: ClaimRequest) -> ClaimRequest | None:
        if self._plan is not None:
            return self._plan.following(request)
        requests = self.given.problem.requests
        return requests[request.index + 1] if request.index + 1 < len(requests) else None

    def _open_component(self) -> bool:
        """The choices for components before this one are final."""
        if self._wants_to_look_ahead:
            self._look_ahead()
        if self._plan is None:
            return self._open_request(self.given.problem.requests[0])
        component = self._plan.components[self._component]
        if self._bounds is not None:
            self._bounds.begin(component)
        return self._open_request(component[0])

    def _open_request(self, request: ClaimRequest) -> bool:
        if request.is_prioritized:
            choice = Choice(request)
            twin = self._twin_before(request)
            if twin is not None:
                # An earlier alternative than that of an equal request before this one leads to no first solution.
                choice.current = twin.options.index(self._first_choices[twin.index][0]) - 1
            self._stack.append(choice)
            return True
        return self._open_option(request.options[0])

    def _open_option(self, option: Option) -> bool:
        claim = option.claim.index
        if self.claim_counts[claim] + self.given.count_of(option) > MAX_ALLOCATION_RESULTS:
            self._leave_for_alternative(option.claim)
            return True
        return self._open_device(option, 0, self._first_rank(option))

    def _twin_before(self, request: ClaimRequest) -> ClaimRequest | None:
        return self._plan.twin_before.get(request.index) if self._plan is not None else None

    def _first_rank(self, option: Option) -> int:
        """Equal requests take their first devices in order; a device that is shared may serve both."""
        twin = self._twin_before(option.request)
        if twin is None or option.all_devices:
            return 0
        chosen, rank = self._first_choices[twin.index]
        return rank if twin.options.index(chosen) == option.request.options.index(option) else 0

    def _leave_for_alternative(self, claim: ClaimProblem) -> None:
        """Too many devices for one claim: only a smaller alternative can help, other devices cannot."""
        stack = self._stack
        while stack:
            frame = stack[-1]
            if isinstance(frame, Choice):
                frame.exceeds_limit = frame.request.claim is claim
                return
            self._undo(frame)
            if frame.option.claim is not claim:
                return
            stack.pop()

    def _open_device(self, option: Option, ordinal: int, start: int) -> bool:
        matches = self.given.matches_by_option[option.index]
        if self._bounds is not None and not self._bounds.sums_suffice(self, option, ordinal, start):
            self._note_stuck(option)
            return False
        if option.all_devices:
            frame = Frame(option, matches, ordinal, start, 0)
        else:
            good = matches.yes & ~matches.barred
            for rule in self._rules:
                good = rule.narrow(option, good)
            candidates = (good | matches.unknown | matches.wrong) & ~self.in_use(option)
            if start:
                candidates = self.given.from_rank(option, candidates, start)
            frame = Frame(option, matches, ordinal, start, candidates)
        if self._kinds is not None:
            frame.key = self._state(option, ordinal, start)
            if frame.key in self._failed_states:
                return False
            if self._bounds is not None:
                frame.remaining = self._bounds.narrow(self, option, ordinal, start, frame.remaining)
                if not frame.remaining and not option.all_devices:
                    self._note_stuck(option)
                    return False
        self._stack.append(frame)
        return True

    def in_use(self, option: Option) -> int:
        if option.admin_access:
            return self.claim_taken[option.claim.index]
        return self.given.stored | self.taken

    # --- one more device ---------------------------------------------------------------------------------------------

    def _advance(self, frame: Frame | Choice) -> bool:
        if isinstance(frame, Choice):
            if frame.current >= 0 and not frame.exceeds_limit:
                frame.only_limit_exceeded = False
            frame.exceeds_limit = False
            frame.current += 1
            return frame.current < len(frame.request.options)
        if frame.option.all_devices:
            return self._advance_all(frame)
        matches, option = frame.matches, frame.option
        first_of = self.given.first_of
        remaining = frame.remaining
        while remaining:
            if self.steps >= self._look_at:
                frame.remaining = remaining
                self._look()
            position = first_of(option, remaining)
            low = 1 << position
            remaining ^= low
            self.steps += 1
            if matches.unknown & low:
                matches.ask(position)
            if matches.wrong & low:
                raise matches.error(option, position)
            if not matches.yes & low or matches.barred & low:
                continue
            if self._enter(option, position):
                frame.remaining = remaining
                frame.position = position
                if not frame.ordinal:
                    self._first_choices[option.request.index] = (option, self.given.rank(option, position))
                return True
        frame.remaining = 0
        return False

    def _advance_all(self, frame: Frame) -> bool:
        """All devices at once; there is no other way to take them."""
        positions = self.given.all_sets[frame.option.index]
        if frame.position >= 0 or not positions:
            return False
        if self.steps >= self._look_at:
            self._look()
        frame.position = 0
        matches = frame.matches
        for position in positions:
            self.steps += 1
            blocked = (self.in_use(frame.option) | matches.barred) >> position & 1
            if blocked or not self._enter(frame.option, position, must=True):
                self._undo(frame)
                return False
            frame.entered.append(position)
        self._first_choices[frame.option.request.index] = (frame.option, 0)
        return True

    def _look_now_and_then(self) -> None:
        """Looking ahead makes steps expensive, and not all of what it does counts as a step."""
        self._turns_until_look -= 1
        if self._turns_until_look < 0:
            self._turns_until_look = EXPENSIVE_STEPS_PER_LOOK
            self._look()

    def _look(self) -> None:
        """May stop the search, so it is called only where everything is in order."""
        self._look_at = self.steps + STEPS_PER_LOOK
        if self._deadline is not None and self._deadline():
            raise SearchTimedOut(self.steps)
        if self._turn_is_over is not None and self._turn_is_over():
            raise Paused(self.steps)

    def _enter(self, option: Option, position: int, must: bool = False) -> bool:
        rules = self._rules_for_all if must else self._rules
        for count, rule in enumerate(rules):
            if not rule.enter(option, position):
                for entered in reversed(rules[:count]):
                    entered.leave(option, position)
                if must and rule.is_constraint:
                    raise self._constraint_violated(option, position)
                return False
        claim = option.claim.index
        self.claim_counts[claim] += 1
        if not self.given.shareable >> position & 1:
            self.taken |= 1 << position
            self.claim_taken[claim] |= 1 << position
        self.chosen.append((option, position))
        return True

    def _constraint_violated(self, option: Option, position: int) -> FatalError:
        pool, place = self.given.node.locate(position)
        return FatalError(
            "constraint",
            f"claim {option.claim.label}, request {option.name}: cannot add device {pool.device_id(place)} "
            "because a claim constraint would not be satisfied",
        )

    def _undo(self, frame: Frame | Choice) -> None:
        """Takes back what the frame has chosen last."""
        if isinstance(frame, Choice):
            return
        if frame.option.all_devices:
            for position in reversed(frame.entered):
                self._leave(frame.option, position)
            frame.entered.clear()
            return
        self._leave(frame.option, frame.position)
        if self._kinds is not None and frame.remaining:
            frame.remaining &= ~self._kinds.equals(frame.option.request.index, frame.position, frame.remaining)

    def _leave(self, option: Option, position: int) -> None:
        self.chosen.pop()
        claim = option.claim.index
        self.claim_counts[claim] -= 1
        if not self.given.shareable >> position & 1:
            self.claim_taken[claim] &= ~(1 << position)
            self.taken = 0
            for mask in self.claim_taken:
                self.taken |= mask
        for rule in reversed(self._rules):
            rule.leave(option, position)

    # --- dead ends ---------------------------------------------------------------------------------------------------

    def first_rank_of(self, option: Option) -> int:
        """Of the device that the option, which is under way, took first."""
        return self._first_choices[option.request.index][1]

    def _dead_end(self, frame: Frame | Choice) -> bool:
        """Takes note of a failure. True: there have been enough of them, start again and look ahead this time."""
        self._dead_ends += 1
        if isinstance(frame, Frame):
            self._note_stuck(frame.option)
        if self._kinds is not None:
            if frame.key is not None:
                self._failed_states.add(frame.key)
            return False
        return bool(self._stack) and self._dead_ends >= PLAIN_DEAD_ENDS

    def _look_ahead(self) -> None:
        """From the next step on; nothing is chosen now. All selectors are asked first, which may take several turns."""
        for matches in self.given.distinct_matches:
            for number, position in enumerate(bits(matches.unknown)):
                if number % STEPS_PER_LOOK == 0:
                    self._look()
                matches.ask(position)
        if self._kinds is None:
            self._kinds = InterchangeableDevices(self.given)
            if not Bounds.may_hide_errors(self.given):
                self._plan = SearchPlan(self.given)
            self._look()
        if self._plan is not None:
            self._bounds = Bounds(self.given, self._plan, self._look)
        self._wants_to_look_ahead = False

    def _note_stuck(self, option: Option) -> None:
        if self._observer is not None:
            self._observer.stuck(self, option)

    def _state(self, option: Option, ordinal: int, start: int) -> Hashable:
        kinds = self._kinds
        assert kinds is not None
        request = option.request.index

        def number(position: int) -> int:
            return kinds.number(request, position)

        if self.given.problem.has_admin:
            held: Hashable = tuple(self.claim_taken)
        else:
            shareable, rank = self.given.shareable, self.given.rank
            held = tuple(
                sorted(
                    [
                        (number(position), rank(option, position) >= start)
                        for _, position in self.chosen
                        if not shareable >> position & 1
                    ]
                )
            )
        rules = tuple([rule.state(request, number) for rule in self._rules])
        return (option.index, ordinal, start, self.claim_counts[option.claim.index], held, rules)
