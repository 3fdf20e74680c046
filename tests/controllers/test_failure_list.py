"""Every way to fail that concerns claims and their controllers, and the tests that provoke it."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent

# What is provoked, and where. A test may stand for several lines; a line may need several tests.
FAILURES = {
    "A1 deletion races with allocation": (
        "controllers/test_claim_writers.py::test_A1_a_claim_deleted_before_it_is_locked_is_not_allocated",
        "controllers/test_claim_writers.py::test_A1_a_claim_deleted_after_it_was_locked_goes_when_nobody_uses_it",
        "scheduler/test_binding.py::test_claim_deleted_while_the_finalizer_is_added",
    ),
    "A2 replaced under the same name while it is locked": (
        "controllers/test_claim_writers.py::test_A2_a_claim_replaced_while_it_is_locked_is_started_over_with",
        "controllers/test_claim_races.py::test_A2_a_claim_re_created_under_the_same_name_is_not_touched",
    ),
    "A3 two schedulers reserve, A4 two schedulers allocate": (
        "controllers/test_claim_writers.py::test_A3_A4_two_schedulers_write_one_claim_and_no_entry_is_lost",
        "scheduler/test_binding.py::test_allocation_by_somebody_else_wins",
    ),
    "A5 wanted while it is being freed": (
        "controllers/test_claim_writers.py::test_A5_a_second_user_of_a_claim_that_is_being_freed_gets_it_whole",
        "controllers/test_claim_writers.py::test_A5_a_user_that_comes_after_the_claim_was_freed_gets_it_anew",
        "scheduler/test_binding.py::test_deallocation_by_somebody_else_fails_the_reservation",
    ),
    "A6 two pods hold what the other needs": (
        "controllers/test_claim_writers.py::test_A6_pods_that_hold_what_the_other_needs_both_run_in_the_end",
    ),
    "A7 finalizer torn off a claim in use": (
        "controllers/test_claim_writers.py::test_A7_a_claim_torn_away_from_its_user_leaves_the_pod_alone",
    ),
    "A8 allocation written without the right to": (
        "apiserver/test_forbidden.py::test_a_driver_speaks_for_its_own_driver_and_node",
        "security/test_namespace_users.py::test_an_allocation_is_not_theirs_to_write",
    ),
    "A9 reservations are full": ("controllers/test_claim_release.py::test_A9_a_full_claim_takes_no_more_users",),
    "A10 pod of an old schema": (
        "controllers/test_claim_writers.py::test_A10_a_pod_whose_source_was_lost_on_the_way_is_refused",
    ),
    "A11 pod status of an old schema": (
        "controllers/test_claim_writers.py::test_A11_an_old_client_that_writes_the_status_takes_nothing_away",
    ),
    "B1 crash between claim and status": (
        "controllers/test_claim_races.py::test_B1_a_crash_after_creation_leaves_no_second_claim",
        "controllers/test_pod_groups.py::test_a_crash_after_creation_leaves_no_second_claim_of_a_group",
    ),
    "B2 the watch lags": (
        "controllers/test_claim_races.py::test_B2_own_writes_cover_a_watch_that_lags",
        "controllers/test_claim_races.py::test_B2_a_recorded_claim_known_only_to_the_server_is_found_by_asking",
    ),
    "B3 recorded claim deleted": ("controllers/test_claim_creation.py::test_B3_a_lost_claim_is_made_again",),
    "B4 foreign claim under the recorded name": (
        "controllers/test_claim_creation.py::test_B4_a_foreign_claim_under_the_recorded_name_is_not_used",
    ),
    "B5 template comes later": (
        "controllers/test_claim_creation.py::test_B5_a_missing_template_is_told_and_waited_for",
    ),
    "B6 template changes": ("controllers/test_claim_creation.py::test_B6_template_edits_do_not_touch_existing_claims",),
    "B7 creation refused": (
        "controllers/test_claim_creation.py::test_B7_a_refused_creation_is_told_counted_and_tried_again",
        "controllers/test_claim_creation.py::test_B7_earlier_claims_survive_the_failure_of_a_later_one",
    ),
    "B8 status write fails": (
        "controllers/test_claim_races.py::test_B8_a_failed_status_write_is_repeated_and_loses_no_entry",
        "controllers/test_claim_races.py::test_B8_a_new_entry_does_not_push_out_a_recorded_one",
    ),
    "B9 pod replaced while reserved": (
        "controllers/test_claim_races.py::test_B9_the_reservation_of_a_replaced_pod_is_dropped_and_the_new_one_kept",
    ),
    "B10 pod only on the server": (
        "controllers/test_claim_races.py::test_B10_a_pod_that_only_the_server_knows_keeps_its_reservation",
    ),
    "B11 server away while asked": ("controllers/test_claim_races.py::test_B11_an_unreachable_server_drops_nothing",),
    "B12 reserved between read and write": (
        "controllers/test_claim_races.py::test_B12_a_reservation_added_in_between_survives",
    ),
    "B13 crash between deallocation and unlocking": (
        "controllers/test_claim_races.py::test_B13_a_crash_between_deallocation_and_unlocking_is_made_good",
    ),
    "B14 unscheduled pod deleted": (
        "controllers/test_claim_release.py::test_B14_a_user_deleted_before_it_got_a_node_frees_the_claim",
        "controllers/test_claim_release.py::test_B14_the_generated_claim_of_an_unscheduled_deleted_pod_goes_at_once",
    ),
    "B15 pod still on its node": (
        "controllers/test_claim_release.py::test_B15_a_user_being_deleted_on_its_node_keeps_the_claim_until_it_is_over",
    ),
    "B16 finished pod is kept": (
        "controllers/test_claim_release.py::test_B16_the_generated_claim_of_a_finished_pod_is_freed_and_deleted",
    ),
    "B17 container restarts": (
        "controllers/test_claim_release.py::test_B17_a_container_that_restarts_releases_nothing",
    ),
    "B18 consumer that is no pod": (
        "controllers/test_claim_release.py::test_B18_users_that_are_no_pods_are_never_removed",
    ),
    "B19 never had a consumer": (
        "controllers/test_claim_release.py::test_B19_an_allocated_claim_without_users_is_left_alone_until_it_is_deleted",
    ),
    "B20 placed by hand": (
        "controllers/test_claim_release.py::test_B20_a_pod_placed_by_hand_is_reserved_for_an_allocated_claim",
        "controllers/test_claim_release.py::test_B20_a_pod_placed_by_hand_never_gets_an_allocation",
    ),
    "B21 long absence": (
        "controllers/test_claim_races.py::test_B21_many_pods_deleted_while_the_controller_was_down",
        "controllers/test_claim_races.py::test_B21_the_memory_of_deleted_pods_is_bounded",
    ),
    "B22 extended resources while the gate is off": (
        "controllers/test_claim_release.py::test_B22_an_extended_resource_claim_is_released_while_the_gate_is_off",
    ),
    "B23 long names": ("controllers/test_claim_creation.py::test_B23_long_names_are_cut_by_the_server_to_63",),
    "D13 node lost": ("controllers/test_survival.py::test_D13_devices_of_a_lost_node_are_free_again_without_the_node",),
    "D14 node deleted": ("controllers/test_survival.py::test_D14_slices_and_pods_of_a_deleted_node_go",),
    "L1 tainted NoExecute": (
        "controllers/test_taint_eviction.py::test_L1_a_tainted_device_drives_its_pod_off_with_condition_and_event",
        "controllers/test_taint_eviction.py::test_L1_a_toleration_with_seconds_is_waited_for",
    ),
    "L2 taint removed in time": (
        "controllers/test_taint_eviction.py::test_L2_a_cause_that_disappears_in_time_cancels_the_eviction",
    ),
    "L3 pod replaced before its eviction": (
        "controllers/test_taint_eviction.py::test_L3_a_replacement_under_the_same_name_is_not_touched",
    ),
    "L4 rule without effect": (
        "controllers/test_taint_eviction.py::test_L4_a_dry_run_counts_and_evicts_nobody_and_is_written_once",
    ),
    "L5 eviction fails": (
        "controllers/test_taint_eviction.py::test_L5_a_failed_eviction_is_tried_again_and_counted_once",
    ),
    "M4 claims outlive the feature": (
        "controllers/test_garbage.py::test_M4_generated_claims_go_with_their_pod_and_slices_with_their_node",
    ),
    "N1 compromised node": (
        "apiserver/test_forbidden.py::test_a_node_cannot_write_any_claim",
        "apiserver/test_forbidden.py::test_a_node_cannot_steal_claims_through_pod_status",
        "apiserver/test_authorization.py::test_a_node_reads_the_claims_of_its_pods_and_no_others",
    ),
    "N2 driver of another node": (
        "apiserver/test_forbidden.py::test_a_driver_speaks_for_its_own_driver_and_node",
        "apiserver/test_forbidden.py::test_a_node_cannot_touch_another_nodes_slices",
    ),
}


def names_in(path):
    tree = ast.parse((TESTS / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("failure", FAILURES)
def test_each_way_to_fail_is_provoked(failure):
    for test in FAILURES[failure]:
        path, _, name = test.partition("::")
        assert name in names_in(path), test
