"""When a pod counts as finished, over, active, on a node or waiting."""

import pytest
from tests.builders.manifests import a_pod

from dray.api.codec import to_object
from dray.api.core import Pod
from dray.api.dra.pod_phase import (
    is_active,
    is_deleted,
    is_finished,
    is_finished_document,
    is_on_node,
    is_over,
    is_waiting_for_node,
)


def pod_in_phase(phase="", node="", deleted=False):
    times = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    return to_object(a_pod("p", node=node, status={"phase": phase}, **times), Pod)


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        pytest.param(pod_in_phase(), {is_active, is_waiting_for_node}, id="new"),
        pytest.param(pod_in_phase("Pending"), {is_active, is_waiting_for_node}, id="pending"),
        pytest.param(pod_in_phase("Pending", deleted=True), {is_deleted, is_over}, id="deleted-before-it-got-a-node"),
        pytest.param(pod_in_phase("Pending", "n"), {is_active, is_on_node}, id="bound"),
        pytest.param(pod_in_phase("Running", "n"), {is_active, is_on_node}, id="running"),
        pytest.param(pod_in_phase("Running", "n", deleted=True), {is_deleted, is_on_node}, id="leaving"),
        pytest.param(pod_in_phase("Succeeded", "n"), {is_finished, is_over}, id="succeeded"),
        pytest.param(pod_in_phase("Failed"), {is_finished, is_over}, id="failed-without-a-node"),
        pytest.param(
            pod_in_phase("Failed", "n", deleted=True), {is_finished, is_over, is_deleted}, id="failed-and-deleted"
        ),
    ],
)
def test_what_is_said_of_a_pod(pod, said):
    questions = {is_active, is_deleted, is_finished, is_on_node, is_over, is_waiting_for_node}
    assert {question for question in questions if question(pod)} == said


def test_documents_say_the_same():
    assert is_finished_document({"status": {"phase": "Failed"}})
    assert not any(map(is_finished_document, ({}, {"status": None}, {"status": {"phase": ["Failed"]}})))
