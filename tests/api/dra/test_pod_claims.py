"""Which claims a pod names, in every state that its status can be in."""

import pytest
from tests.builders.manifests import a_pod

from dray.api.codec import to_object
from dray.api.core import Pod
from dray.api.dra.pod_claims import (
    ClaimSource,
    PodClaim,
    claim_names,
    claim_names_by_entry,
    claim_names_of_entries,
    claim_records,
    claims_of_pod,
    containers_by_entry,
    entries_without_claim,
    extended_claim_record,
    extended_resource_claim_name,
    generated_claim_prefix,
    mentioned_claim_names,
    recorded_claims,
    requests_of_container,
    uses_claims,
    with_recorded_claims,
)
from dray.api.workloads import PodGroup

NAMED = {"name": "a", "resourceClaimName": "shared"}
FROM_TEMPLATE = {"name": "b", "resourceClaimTemplateName": "gpus"}
EXTENDED = {
    "resourceClaimName": "p-extended",
    "requestMappings": [{"containerName": "main", "resourceName": "example.com/gpu", "requestName": "r0"}],
}


def pod_with_entries(*entries, records=(), extended=None, containers=()):
    status = {"resourceClaimStatuses": list(records)}
    if extended:
        status["extendedResourceClaimStatus"] = extended
    document = a_pod("p", namespace="n", resourceClaims=list(entries), status=status)
    document["spec"]["containers"] = list(containers)
    return to_object(document, Pod)


def container_using(name, *uses, **requests):
    claims = [{"name": entry, "request": request} for entry, request in uses]
    return {"name": name, "resources": {"claims": claims, "requests": requests.get("requests", {})}}


@pytest.mark.parametrize(
    ("entry", "records", "expected"),
    [
        pytest.param(NAMED, [], PodClaim("a", "shared", ClaimSource.NAMED), id="named"),
        pytest.param(FROM_TEMPLATE, [], PodClaim("b", "", ClaimSource.TEMPLATE, False), id="not-made-yet"),
        pytest.param(
            FROM_TEMPLATE,
            [{"name": "b", "resourceClaimName": "p-b-x"}],
            PodClaim("b", "p-b-x", ClaimSource.TEMPLATE),
            id="made",
        ),
        pytest.param(FROM_TEMPLATE, [{"name": "b"}], PodClaim("b", "", ClaimSource.TEMPLATE), id="none-is-needed"),
        pytest.param({"name": "c"}, [], PodClaim("c", "", ClaimSource.UNKNOWN), id="neither-claim-nor-template"),
    ],
)
def test_the_claim_of_an_entry(entry, records, expected):
    assert claims_of_pod(pod_with_entries(entry, records=records)) == [expected]


def test_the_extended_resource_claim_comes_last_and_belongs_to_the_pod():
    pod = pod_with_entries(NAMED, FROM_TEMPLATE, extended=EXTENDED)
    assert [claim.claim_name for claim in claims_of_pod(pod)] == ["shared", "", "p-extended"]
    assert [claim.is_generated for claim in claims_of_pod(pod)] == [False, True, True]
    assert claim_names(pod) == ["shared", "p-extended"]
    assert claim_names_of_entries(pod) == ["shared"]
    assert claim_names_by_entry(pod) == {"a": "shared", "/p-extended": "p-extended"}
    assert [entry.name for entry in entries_without_claim(pod)] == ["b"]


def test_a_pod_uses_claims_through_its_spec_or_its_extended_resources():
    assert not uses_claims(pod_with_entries())
    assert uses_claims(pod_with_entries(NAMED))
    assert uses_claims(pod_with_entries(extended=EXTENDED))


def test_a_group_lists_claims_like_a_pod():
    group = to_object(
        {
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": {"resourceClaims": [FROM_TEMPLATE]},
            "status": {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "g-b-x"}]},
        },
        PodGroup,
    )
    assert claim_names_of_entries(group) == ["g-b-x"]


def test_containers_by_the_claim_they_use():
    containers = [container_using("init", ("a", "")), container_using("main", ("a", "r1"), ("b", ""))]
    pod = pod_with_entries(NAMED, FROM_TEMPLATE, extended=EXTENDED, containers=containers)
    assert containers_by_entry(pod) == {"a": ["init", "main"], "b": ["main"], "/p-extended": ["main"]}


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        pytest.param({"example.com/gpu": "1"}, [("shared", "r1"), ("p-extended", "r0")], id="asks-for-the-resource"),
        pytest.param({}, [("shared", "r1")], id="does-not-ask"),
    ],
)
def test_requests_of_a_container(requests, expected):
    main = container_using("main", ("a", "r1"), ("b", ""), requests=requests)
    pod = pod_with_entries(NAMED, FROM_TEMPLATE, extended=EXTENDED, containers=[main])
    assert requests_of_container(pod, pod.spec.containers[0]) == expected


def test_records_are_written_as_they_are_read():
    pod = with_recorded_claims(pod_with_entries(FROM_TEMPLATE), {"b": "p-b-x"})
    assert recorded_claims(pod) == {"b": "p-b-x"}
    assert with_recorded_claims(pod, recorded_claims(pod)) is pod
    assert claim_records({"b": "2", "a": "1"}) == {
        "resourceClaimStatuses": [{"name": "a", "resourceClaimName": "1"}, {"name": "b", "resourceClaimName": "2"}]
    }
    record = extended_claim_record("p-extended", EXTENDED["requestMappings"])
    assert record == {"extendedResourceClaimStatus": EXTENDED}
    assert extended_resource_claim_name({"status": record}) == "p-extended"


@pytest.mark.parametrize("document", [{}, {"status": None}, {"status": {"extendedResourceClaimStatus": "x"}}])
def test_a_document_without_an_extended_resource_claim(document):
    assert extended_resource_claim_name(document) is None


def test_a_record_is_mentioned_even_without_its_entry():
    pod = pod_with_entries(
        NAMED, records=[{"name": "gone", "resourceClaimName": "left"}, {"name": "none"}], extended=EXTENDED
    )
    assert list(mentioned_claim_names(pod.spec, pod.status)) == ["shared", "left", "p-extended"]


@pytest.mark.parametrize(
    ("pod", "entry", "expected"),
    [
        pytest.param("web", "gpu", "web-gpu-", id="short"),
        pytest.param("p" * 60, "c" * 60, "p" * 28 + "-" + "c" * 28, id="both-are-cut"),
        pytest.param("p", "c" * 63, "p-" + "c" * 54, id="one-letter-of-the-pod-stays"),
    ],
)
def test_the_prefix_of_a_generated_name(pod, entry, expected):
    assert generated_claim_prefix(pod, entry) == expected
