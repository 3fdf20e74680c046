"""Every way to fail that concerns nodes, drivers and what containers get, and the tests that provoke it.

Claims and controllers have a list of their own; together they leave nothing out.
"""

import pytest

from tests.controllers.test_failure_list import FAILURES as OF_CLAIMS
from tests.controllers.test_failure_list import names_in

# What is provoked, and where. A test may stand for several lines; a line may need several tests.
FAILURES = {
    # --- starting pods
    "C1 driver not registered": (
        "kubelet/test_node.py::test_a_pod_whose_driver_is_not_there_waits_and_can_be_deleted",
        "kubelet/test_prepare.py::test_a_driver_that_is_not_there_leaves_no_trace",
    ),
    "C2 claim missing, not allocated, not reserved, not the pod's": (
        "kubelet/test_prepare.py::test_a_claim_that_must_not_be_used_leaves_no_trace",
        "kubelet/test_claims.py::test_claims_that_must_not_be_used_are_refused",
    ),
    "C3 prepare hangs": (
        "kubelet/test_prepare.py::test_a_driver_that_hangs_is_given_up_on_in_time",
        "kubelet/test_pod_worker.py::test_a_pod_deleted_while_its_claims_are_being_prepared_gives_them_back",
    ),
    "C4 one of two drivers fails": (
        "kubelet/test_claims_in_trouble.py::test_one_of_two_drivers_fails_and_both_are_asked_again",
    ),
    "C5 answers that make no sense": (
        "kubelet/test_prepare.py::test_drivers_that_fail_or_lie_are_told_apart_and_a_retry_heals",
        "kubelet/test_claims_in_trouble.py::test_an_answer_without_devices_is_a_success",
    ),
    "C6 disk full": (
        "kubelet/test_trouble.py::test_a_full_disk_refuses_before_any_call_and_heals_when_there_is_room",
        "kubelet/test_prepare.py::test_a_checkpoint_that_cannot_be_written_stops_before_the_driver_is_called",
    ),
    "C7 claim replaced under the same name": (
        "kubelet/test_claims_in_trouble.py::test_a_new_claim_of_the_same_name_waits_until_the_old_one_was_given_back",
    ),
    "C8 claim wanted while it is given back": (
        "kubelet/test_prepare.py::test_a_failed_unprepare_keeps_the_claim_closed_until_it_worked",
    ),
    "C9 two pods of one claim start together": (
        "kubelet/test_claims_in_trouble.py::test_two_pods_of_one_claim_start_together",
    ),
    "C10 claim that no container uses": (
        "kubelet/test_claims_in_trouble.py::test_a_claim_that_no_container_uses_is_prepared_and_given_back",
    ),
    "C11 sandbox dies": (
        "kubelet/test_pod_images.py::test_a_sandbox_that_died_is_made_anew_and_its_claims_are_prepared_again",
        "kubelet/test_cri_runtime.py::test_a_dead_sandbox_is_followed_by_the_next_one",
    ),
    "C12 API server away": (
        "kubelet/test_pod_images.py::test_containers_restart_while_the_api_server_is_away",
        "kubelet/test_claims_in_trouble.py::test_without_an_api_server_new_pods_wait",
    ),
    "C13 driver gone when a container restarts": (
        "kubelet/test_node.py::test_a_container_restarts_without_its_driver",
    ),
    "C14 no room on the node": (
        "kubelet/test_pod_worker.py::test_a_pod_without_room_fails_without_being_prepared",
        "kubelet/test_turned_away.py::test_what_a_claim_takes_of_the_node_is_counted",
    ),
    # --- stopping pods, restarts
    "D1 unprepare fails": ("kubelet/test_pod_worker.py::test_nothing_is_let_go_while_a_driver_holds_a_claim",),
    "D2 driver uninstalled": (
        "kubelet/test_registration.py::test_a_driver_that_is_uninstalled_keeps_its_claims_in_use_until_it_is_back",
    ),
    "D3 last of several pods": (
        "kubelet/test_prepare.py::test_a_prepared_claim_is_not_prepared_again_for_the_next_pod",
    ),
    "D4 pod that was never let in": (
        "kubelet/test_claims.py::test_a_pod_that_never_got_that_far_leaves_nothing",
        "kubelet/test_prepare.py::test_a_pod_that_never_prepared_has_nothing_to_give_back",
    ),
    "D5 agent restarts before prepare answers, D6 before unprepare answers": (
        "e2e/test_processes.py::test_killed_while_a_pod_starts_and_while_it_ends",
        "kubelet/test_prepare.py::test_after_a_restart_claims_are_known_and_prepared_again_when_needed",
    ),
    "D7 pod deleted while the agent is down": (
        "kubelet/test_node.py::test_a_pod_that_was_deleted_while_nobody_looked_leaves_nothing",
        "kubelet/test_node.py::test_a_pod_that_was_deleted_before_it_was_prepared_is_never_prepared",
    ),
    "D8 pod created while the agent is down": (
        "kubelet/test_node.py::test_a_pod_that_came_while_the_agent_was_down_is_run",
    ),
    "D9 pod force-deleted": (
        "e2e/test_processes.py::test_a_force_deleted_pod_leaves_nothing",
        "kubelet/test_pod_worker.py::test_a_force_deleted_pod_is_killed_quickly_and_nothing_is_written_for_it",
    ),
    "D10 pod status lost its claims": (
        "kubelet/test_claims_in_trouble.py::test_a_pod_whose_status_lost_its_claims_gives_them_back_all_the_same",
    ),
    "D11 checkpoint corrupt, or of a newer agent": (
        "kubelet/test_claims.py::test_a_checkpoint_that_cannot_be_trusted_says_so",
        "kubelet/test_prepare.py::test_a_corrupt_checkpoint_is_put_aside_and_claims_are_prepared_again",
        "kubelet/test_claims_in_trouble.py::test_a_checkpoint_of_a_newer_kubelet_is_read",
    ),
    "D12 checkpoint deleted": (
        "kubelet/test_claims_in_trouble.py::test_without_its_checkpoint_an_agent_starts_empty",
        "driver/test_server.py::test_claims_that_went_away_meanwhile_are_given_back",
    ),
    "D13 node lost and back": ("kubelet/test_node.py::test_a_pod_that_was_deleted_while_nobody_looked_leaves_nothing",),
    "D14 node deleted": ("kubelet/test_node.py::test_a_node_that_was_deleted_and_is_started_again_is_there_again",),
    # --- registration and connections
    "E1 GetInfo fails at first": (
        "kubelet/test_neighbours.py::test_a_registration_that_fails_at_first_is_tried_again",
    ),
    "E2 Notify fails": (
        "kubelet/test_registration.py::test_a_driver_that_cannot_be_told_of_its_registration_is_registered_later",
    ),
    "E3 unknown type, no common version": (
        "kubelet/test_prepare.py::test_drivers_without_a_common_version_are_told_so",
        "kubelet/test_prepare.py::test_other_plugins_are_refused_by_type",
    ),
    "E4 registration before the service listens": (
        "kubelet/test_registration.py::test_a_service_that_listens_later_than_it_registers_is_called_once_it_does",
        "kubelet/test_registration.py::test_slices_of_a_service_that_never_listens_are_removed",
    ),
    "E5 driver killed, sockets left": (
        "kubelet/test_registration.py::test_a_driver_that_is_killed_loses_its_slices_after_half_a_minute",
    ),
    "E6 driver back in time": (
        "kubelet/test_registration.py::test_a_driver_that_is_back_within_half_a_minute_keeps_its_slices",
    ),
    "E7 driver accepts and never answers": (
        "kubelet/test_trouble.py::test_a_stopped_driver_is_given_up_on_and_heals_when_it_goes_on",
        "kubelet/test_neighbours.py::test_a_silent_plugin_keeps_nobody_waiting",
    ),
    "E8 two instances": (
        "kubelet/test_prepare.py::test_two_instances_serve_side_by_side_and_the_newest_is_asked",
        "kubelet/test_registration.py::test_a_second_instance_that_is_killed_leaves_the_calls_to_the_first",
        "driver/test_crashes.py::test_an_update_with_two_processes_side_by_side",
    ),
    "E9 same endpoint twice": ("kubelet/test_prepare.py::test_the_same_endpoint_twice_is_refused",),
    "E10 agent restarts with two instances": (
        "kubelet/test_registration.py::test_a_restarted_agent_finds_all_instances_in_whatever_order",
    ),
    "E11 long names": (
        "driver/test_sockets.py::test_names_that_do_not_fit_are_shortened",
        "driver/test_sockets.py::test_shortened_names_stay_apart",
    ),
    "E12 idle connection": ("kubelet/test_registration.py::test_a_connection_that_idled_away_is_made_again",),
    "E13 older service first": (
        "kubelet/test_registration.py::test_the_first_service_of_the_drivers_own_list_is_spoken",
    ),
    # --- slices
    "F1 agent starts": (
        "kubelet/test_node.py::test_an_agent_that_starts_removes_slices_and_leaves_claims_alone",
        "driver/test_publisher.py::test_slices_that_a_starting_kubelet_removed_are_put_back_at_once",
    ),
    "F2 slices cannot be removed": ("kubelet/test_node.py::test_slices_that_cannot_be_removed_now_are_removed_later",),
    "F3 others delete or edit": (
        "driver/test_publisher.py::test_what_others_delete_comes_back_after_half_a_minute",
        "driver/test_publisher.py::test_what_others_change_is_put_right_after_half_a_minute",
    ),
    "F4 two slices change": ("driver/test_publisher.py::test_two_changed_slices_are_a_new_generation_of_all",),
    "F5 crash in the middle of an update": (
        "driver/test_publisher_trouble.py::test_a_driver_that_dies_while_it_publishes_is_seen_as_incomplete_and_completes_later",
    ),
    "F6 one slice changes": ("driver/test_publisher.py::test_one_changed_slice_is_one_update_in_the_same_generation",),
    "F7 server drops fields": ("driver/test_publisher.py::test_dropped_fields_are_reported_once_and_cause_no_loop",),
    "F8 invalid device": (
        "driver/test_publisher.py::test_what_the_server_refuses_is_reported_and_not_asked_for_again",
        "driver/test_publisher_trouble.py::test_an_invalid_device_does_not_keep_obsolete_slices",
        "driver/test_publisher_trouble.py::test_an_invalid_pool_does_not_keep_another_one_from_being_removed",
    ),
    "F9 watch lags": ("driver/test_publisher_trouble.py::test_a_watch_that_lags_causes_no_second_slice",),
    "F10 slice replaced while deleted": (
        "driver/test_publisher_trouble.py::test_a_slice_that_was_replaced_while_it_is_deleted_is_looked_at_again",
    ),
    "F11 slice of another node": (
        "apiserver/test_forbidden.py::test_a_node_cannot_touch_another_nodes_slices",
        "apiserver/test_policies.py::test_a_driver_keeps_to_the_slices_of_its_node",
    ),
    "F12 node does not declare that it counts devices": (
        "driver/test_publisher_trouble.py::test_devices_that_take_cpu_are_published_whatever_their_node_declares",
    ),
    "F13 device twice": ("driver/test_publisher.py::test_a_pool_that_contradicts_itself_is_refused_whole",),
    # --- drivers
    "G1 asked twice": (
        "driver/test_server.py::test_prepare_is_idempotent_also_after_a_restart",
        "driver/test_server.py::test_unprepare_removes_the_traces_and_an_unknown_claim_is_fine",
    ),
    "G2 given back by the next process": (
        "driver/test_crashes.py::test_an_update_with_two_processes_side_by_side",
        "driver/test_server.py::test_prepare_is_idempotent_also_after_a_restart",
    ),
    "G3 claim replaced meanwhile": ("driver/test_server.py::test_a_claim_that_does_not_stand_fails_the_whole_call",),
    "G4 device of another claim": ("driver/test_server.py::test_a_device_is_not_prepared_for_two_claims",),
    "G5 killed between two writes": (
        "driver/test_crashes.py::test_killed_after_the_cdi_file_and_before_the_checkpoint",
        "driver/test_crashes.py::test_killed_while_giving_back_after_the_cdi_file_and_before_the_checkpoint",
        "driver/test_crashes.py::test_killed_before_the_cdi_file_nothing_is_held",
    ),
    "G6 CDI file cannot be removed": (
        "driver/test_server.py::test_a_cdi_file_that_cannot_be_removed_keeps_the_device_reserved",
    ),
    "G7 two instances at once": (
        "driver/test_server.py::test_two_instances_of_an_updated_driver_share_what_is_on_disk",
        "driver/test_crashes.py::test_an_update_with_two_processes_side_by_side",
    ),
    "G8 unknown parameters": (
        "driver/test_server.py::test_parameters_that_nobody_can_read_fail_their_claim_alone",
        "driver/test_server.py::test_a_refusal_concerns_its_claim_only",
    ),
    "G9 unprepare never comes": (
        "driver/test_server.py::test_claims_that_went_away_meanwhile_are_given_back",
        "kubelet/test_node.py::test_a_pod_that_was_deleted_while_nobody_looked_leaves_nothing",
    ),
    "G10 driver cannot go on": (
        "driver/test_crashes.py::test_a_process_that_lost_its_socket_ends_and_says_why",
        "driver/test_crashes.py::test_a_driver_whose_publisher_ended_cannot_go_on",
    ),
    # --- runtime and CDI
    "H1 CDI name without a file": (
        "kubelet/test_trouble.py::test_cdi_names_with_tricks_or_without_a_file_fail_the_container",
        "kubelet/test_pod_images.py::test_a_device_that_its_runtime_cannot_find_is_looked_for_again",
    ),
    "H2 name in two files": ("kubelet/test_trouble.py::test_a_name_in_two_files_is_unusable",),
    "H3 unknown field, old version": ("kubelet/test_trouble.py::test_a_corrupt_cdi_file_harms_nobody_else",),
    "H4 runtime without CDI": (
        "e2e/test_containerd.py::test_a_runtime_that_does_not_know_cdi_starts_containers_without_their_devices",
        "kubelet/test_cri_runtime.py::test_a_runtime_that_ignores_cdi_names_still_gets_the_containers_own_environment",
    ),
    "H5 request of a container": (
        "kubelet/test_claims.py::test_devices_serve_the_requests_they_name",
        "kubelet/test_neighbours.py::test_pod_resources_show_the_devices_of_each_container",
    ),
    "H6 file changes after the start": (
        "kubelet/test_node.py::test_a_cdi_file_that_changes_is_seen_by_containers_that_start_later",
    ),
    # --- device health
    "I1 device turns unhealthy": (
        "kubelet/test_neighbours.py::test_only_changes_are_told_and_long_messages_are_cut",
        "kubelet/test_pod_worker_in_trouble.py::test_device_health_is_in_every_status",
    ),
    "I2 reports stop, I7 lease makes no sense": (
        "kubelet/test_neighbours.py::test_a_device_is_unknown_after_its_lease",
    ),
    "I3 stream breaks": (
        "kubelet/test_device_health.py::test_a_stream_that_breaks_makes_health_unknown_until_it_is_back",
    ),
    "I4 no health": ("kubelet/test_device_health.py::test_a_driver_that_does_not_implement_health_is_not_asked_again",),
    "I5 invented devices": (
        "kubelet/test_neighbours.py::test_invented_devices_have_a_limit_and_known_ones_are_still_heard",
    ),
    "I6 burst of updates": ("kubelet/test_device_health.py::test_after_a_burst_the_last_word_counts",),
    "I8 one version of the service": ("kubelet/test_device_health.py::test_both_versions_of_the_service_are_spoken",),
    # --- node-allocatable resources
    "J1 claim and spec exceed the node": (
        "kubelet/test_turned_away.py::test_what_a_claim_takes_of_the_node_is_counted",
    ),
    "J2 gate off on the node": (
        "kubelet/test_turned_away.py::test_with_the_gate_off_only_the_spec_counts",
        "kubelet/test_enforced_values.py::test_with_the_gate_off_the_spec_alone_decides",
    ),
    "J3 claim of several containers": (
        "kubelet/test_enforced_values.py::test_a_claim_of_several_containers_counts_once_and_its_overhead_for_each",
    ),
    "J4 no limit of its own": (
        "kubelet/test_enforced_values.py::test_a_claim_never_makes_a_limit_where_there_was_none",
    ),
    "J5 huge pages of a claim": ("kubelet/test_enforced_values.py::test_huge_pages_of_a_claim_are_allowed",),
    "J6 best effort with a claim": (
        "kubelet/test_enforced_values.py::test_a_pod_that_asks_for_nothing_itself_stays_best_effort",
    ),
    "J7 resize": (
        "apiserver/test_resize.py::test_pods_with_claims_on_node_resources_are_not_resized",
        "apiserver/test_resize.py::test_a_pod_level_budget_covers_claims_after_a_resize",
    ),
    "J8 budget too small": (
        "scheduler/test_node_resources.py::test_budget_below_the_claims_is_never_schedulable",
        "apiserver/test_resize.py::test_a_pod_level_budget_covers_claims_after_a_resize",
    ),
    "J9 pod from before the gate": (
        "kubelet/test_enforced_values.py::test_a_pod_from_before_the_gate_counts_by_its_spec",
    ),
    "J10 two pods of one claim": (
        "scheduler/test_node_resources.py::test_claim_with_mapped_amounts_belongs_to_one_pod",
        "accounting/test_ledger.py::test_overhead_may_be_shared_and_is_charged_to_each_pod",
    ),
    # --- attributes in the environment, metadata files
    "K1 attribute missing": ("kubelet/test_environment.py::test_missing_attributes_fail_the_container",),
    "K2 attribute changes": (
        "kubelet/test_node.py::test_an_attribute_that_changes_is_seen_by_containers_that_start_later",
    ),
    "K3 slices away while a container restarts": (
        "kubelet/test_node.py::test_without_slices_a_container_waits_for_its_attributes",
    ),
    "K4 another alternative": ("kubelet/test_environment.py::test_a_chosen_alternative_is_found_under_its_request",),
    "K5 gate off": ("kubelet/test_environment.py::test_the_gate_leaves_the_variable_out",),
    "K6 metadata cannot be written": (
        "driver/test_metadata.py::test_metadata_that_cannot_be_written_does_not_keep_a_pod_from_starting",
    ),
    "K7 metadata of a newer driver": ("driver/test_metadata.py::test_the_first_version_that_is_known_is_read",),
    "K8 two drivers serve one request": (
        "driver/test_metadata.py::test_two_drivers_that_serve_one_request_are_read_together",
    ),
    # --- driver removal, skew
    "L6 driver to be removed": ("kubelet/test_node.py::test_a_driver_is_removed_once_nothing_of_it_is_in_use",),
    "M1 parts of different ages": (
        "kubelet/test_registration.py::test_the_first_service_of_the_drivers_own_list_is_spoken",
        "driver/test_server.py::test_v1beta1_is_served_too_without_share_ids",
        "skew/test_old_clients.py::test_a_claim_of_an_old_client_is_allocated_and_read_in_every_version",
    ),
    "M2 scheduled while the feature was off": (
        "kubelet/test_claims.py::test_claims_that_must_not_be_used_are_refused",
    ),
}

# M3, a node agent that does not know claims at all, is not one of ours: Dray's always knows them.
NOT_OURS = {"M3"}
LAST = {
    "A": 11,
    "B": 23,
    "C": 14,
    "D": 14,
    "E": 13,
    "F": 13,
    "G": 10,
    "H": 6,
    "I": 8,
    "J": 10,
    "K": 8,
    "L": 6,
    "M": 4,
    "N": 2,
}


@pytest.mark.parametrize("failure", FAILURES)
def test_each_way_to_fail_is_provoked(failure):
    for test in FAILURES[failure]:
        path, _, name = test.partition("::")
        assert name in names_in(path), test


def test_nothing_is_left_out():
    lines = " ".join((*FAILURES, *OF_CLAIMS)).replace(",", " ").split()
    every = {f"{letter}{number}" for letter, last in LAST.items() for number in range(1, last + 1)}
    assert every - set(lines) == NOT_OURS
