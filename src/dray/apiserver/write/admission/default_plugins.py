"""The admission plugins of a server, in Kubernetes' order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dray.apiserver.request.authorization.authorizer import ServerAuthorizer
from dray.apiserver.watch.kind_cache import ObjectLookup
from dray.apiserver.write.admission.certificate_plugins import CertificateRequests, ClusterTrustBundleAttest
from dray.apiserver.write.admission.chain import AdmissionPlugin, PluginChain
from dray.apiserver.write.admission.default_classes import (
    DefaultIngressClass,
    DefaultStorageClass,
    PersistentVolumeClaimResize,
)
from dray.apiserver.write.admission.namespace_and_quota_plugins import (
    LimitRanger,
    NamespaceLifecycle,
    ResourceQuotaAdmission,
)
from dray.apiserver.write.admission.node_plugins import NodeRestriction, PodTopologyLabels, TaintNodesByCondition
from dray.apiserver.write.admission.pod_and_claim_plugins import (
    ClaimFinalizerProtection,
    ClaimStatusAuthorization,
    DefaultTolerationSeconds,
    PodResizeValidator,
    Priority,
    ServiceAccount,
)
from dray.apiserver.write.admission.pod_runtime_plugins import PodSecurity, RuntimeClass
from dray.apiserver.write.admission.policies_and_webhooks import PoliciesAndWebhooks, PolicyChecks
from dray.apiserver.write.admission.rbac_escalation import RbacEscalation
from dray.apiserver.write.admission.service_addresses import AddressBook, ServiceAddresses
from dray.apiserver.write.admission.service_node_ports import NodePortBook, ServiceNodePorts
from dray.features import FeatureGates
from dray.store.interface import Store


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of the server that plugins use."""

    store: Store
    objects: ObjectLookup
    authorizer: ServerAuthorizer
    policies_and_webhooks: PoliciesAndWebhooks
    addresses: AddressBook
    node_ports: NodePortBook
    gates: FeatureGates
    new_suffix: Callable[[], str]
    # Charge cpu and memory that claims add to a pod to its namespace's quota.
    quota_counts_claims: bool = False


def default_plugins(surroundings: Surroundings) -> Iterator[AdmissionPlugin]:
    objects, gates, authorizer = surroundings.objects, surroundings.gates, surroundings.authorizer
    yield NamespaceLifecycle(objects)
    yield LimitRanger(objects)
    yield ServiceAccount(objects, surroundings.new_suffix)
    yield NodeRestriction(objects, authorizer)
    yield TaintNodesByCondition()
    yield PodSecurity(objects, gates)
    yield Priority(objects)
    yield DefaultTolerationSeconds()
    yield DefaultStorageClass(objects)
    yield PersistentVolumeClaimResize(objects)
    yield RuntimeClass(objects)
    yield ClaimStatusAuthorization(authorizer, gates)
    yield ClaimFinalizerProtection()
    yield RbacEscalation(authorizer.rbac, authorizer)
    yield CertificateRequests(authorizer)
    yield ClusterTrustBundleAttest(authorizer)
    yield DefaultIngressClass(objects)
    yield PodTopologyLabels(objects, gates)
    yield ServiceAddresses(surroundings.addresses)
    yield PodResizeValidator(objects)
    yield PolicyChecks()
    yield surroundings.policies_and_webhooks
    # What passes here has been charged.
    yield ResourceQuotaAdmission(surroundings.store, objects, counts_claims=surroundings.quota_counts_claims)
    # After the quota, so that a Service which is refused holds no ports.
    yield ServiceNodePorts(surroundings.node_ports)


def default_chain(surroundings: Surroundings) -> PluginChain:
    chain = PluginChain(list(default_plugins(surroundings)))
    surroundings.policies_and_webhooks.on_change(chain.reconsider)
    return chain
