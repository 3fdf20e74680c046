"""What NVML reports about a card becomes health and taints."""

import json

import pynvml
import pytest
from tests.driver.nvidia.standin import UUID

XID = pynvml.nvmlEventTypeXidCriticalError
ECC = pynvml.nvmlEventTypeDoubleBitEccError


@pytest.fixture
def watched(make_driver):
    driver = make_driver()
    driver._health.register(driver._cards)
    return driver


def taints_of(driver):
    (pool,) = driver.pools("h200")
    return [(taint.key, taint.value, taint.effect) for device in pool.devices for taint in device.taints]


def health_of(driver):
    (health,) = driver.health()
    return health.health, health.message


def test_a_card_without_events_is_healthy(watched):
    assert watched._look(looks_for_cards=True) is False
    assert health_of(watched) == ("Healthy", "")
    assert taints_of(watched) == []


def test_an_xid_makes_the_card_unhealthy(watched, library):
    library.events.append((UUID, XID, 48))
    assert watched._look(looks_for_cards=False) is True
    assert health_of(watched) == ("Unhealthy", "the card reported Xid 48")
    assert taints_of(watched) == [("gpu.nvidia.com/xid", "48", "NoSchedule")]


def test_a_card_that_fell_off_the_bus_loses_its_pods(watched, library):
    library.events.append((UUID, XID, 79))
    watched._look(looks_for_cards=False)
    assert taints_of(watched) == [("gpu.nvidia.com/xid", "79", "NoExecute")]


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
def test_mistakes_of_programs_do_not_count(watched, library, xid):
    library.events.append((UUID, XID, xid))
    assert watched._look(looks_for_cards=False) is False
    assert health_of(watched) == ("Healthy", "")


def test_an_error_that_memory_cannot_correct_makes_the_card_unhealthy(watched, library):
    library.events.append((UUID, ECC, 0))
    watched._look(looks_for_cards=False)
    assert taints_of(watched) == [("gpu.nvidia.com/ecc", "double-bit", "NoSchedule")]


def test_a_card_that_does_not_answer_is_lost_until_it_answers(watched, library):
    library.cards[0].is_lost = True
    assert watched._look(looks_for_cards=True) is True
    assert health_of(watched) == ("Unhealthy", "the card does not answer any more")
    assert taints_of(watched) == [("gpu.nvidia.com/gpu-lost", "", "NoExecute")]
    library.cards[0].is_lost = False
    assert watched._look(looks_for_cards=True) is True
    assert health_of(watched) == ("Healthy", "")
    assert taints_of(watched) == []


def test_a_hot_card_is_marked_and_stays_usable(watched, library):
    library.cards[0].clock_reasons = pynvml.nvmlClocksEventReasonHwThermalSlowdown
    assert watched._look(looks_for_cards=False) is True
    assert health_of(watched) == ("Healthy", "")
    assert taints_of(watched) == [("gpu.nvidia.com/throttled", "heat", "None")]
    library.cards[0].clock_reasons = 0
    assert watched._look(looks_for_cards=False) is True
    assert taints_of(watched) == []


def test_a_card_without_events_is_marked(make_driver, library):
    library.fails["nvmlDeviceRegisterEvents"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    driver = make_driver()
    driver._health.register(driver._cards)
    driver._look(looks_for_cards=False)
    assert taints_of(driver) == [("gpu.nvidia.com/unmonitored", "", "None")]


def test_the_same_event_again_changes_nothing(watched, library):
    library.events += [(UUID, XID, 48), (UUID, XID, 48)]
    assert watched._look(looks_for_cards=False) is True
    assert watched._look(looks_for_cards=False) is False


def test_made_up_events_come_from_a_file(make_driver, tmp_path):
    file = tmp_path / "events"
    driver = make_driver(event_file=file)
    driver._health.register(driver._cards)
    file.write_text(f"{json.dumps({'uuid': UUID, 'xid': 79})}\nnonsense\n")
    assert driver._look(looks_for_cards=False) is True
    assert taints_of(driver) == [("gpu.nvidia.com/xid", "79", "NoExecute")]
    assert driver._look(looks_for_cards=False) is False


def test_instances_that_an_administrator_makes_appear(make_driver, library):
    from tests.driver.nvidia.standin import StandInCard, StandInInstance

    library.cards = [StandInCard(has_mig=True)]
    driver = make_driver()
    driver._health.register(driver._cards)
    library.cards[0].instances.append(StandInInstance(3, 9, 4))
    assert driver._look(looks_for_cards=True) is True
    (pool,) = driver.pools("h200")
    assert [device.name for device in pool.devices] == ["gpu-0-mig-3g71gb-9-4"]
