"""The `authorizer` variable: `authorizer.group('').resource('pods').namespace('x').check('get').allowed()`."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from dray.apiserver.request.request_info import (
    AUTHENTICATED,
    SERVICE_ACCOUNTS_GROUP,
    Attributes,
    Decision,
    User,
    service_account_user_name,
)
from dray.cel.functions import Library, guard_name
from dray.cel.types import BOOL, STRING, Type
from dray.cel.values import name_type

AUTHORIZER = Type("struct", "kubernetes.authorization.Authorizer")
PATH_CHECK = Type("struct", "kubernetes.authorization.PathCheck")
GROUP_CHECK = Type("struct", "kubernetes.authorization.GroupCheck")
RESOURCE_CHECK = Type("struct", "kubernetes.authorization.ResourceCheck")
DECISION = Type("struct", "kubernetes.authorization.Decision")
# One question is as dear as a third of what an expression may spend, as in Kubernetes.
CHECK_COST = 350_000

Decide = Callable[[Attributes], Decision]


@dataclass(frozen=True, slots=True)
class CelAuthorizer:
    user: User
    decide: Decide


@dataclass(frozen=True, slots=True)
class PathCheck:
    decide: Decide
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class GroupCheck:
    authorizer: CelAuthorizer
    group: str


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    decide: Decide
    attributes: Attributes


for _type, _class in (
    (AUTHORIZER, CelAuthorizer),
    (PATH_CHECK, PathCheck),
    (GROUP_CHECK, GroupCheck),
    (RESOURCE_CHECK, ResourceCheck),
    (DECISION, Decision),
):
    guard_name(_type.name, _class)
    name_type(_class, _type.name)


def _service_account(authorizer: CelAuthorizer, namespace: str, name: str) -> CelAuthorizer:
    groups = (SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{namespace}", AUTHENTICATED)
    return CelAuthorizer(User(service_account_user_name(namespace, name), groups), authorizer.decide)


def _resource(check: GroupCheck, resource: str) -> ResourceCheck:
    attributes = Attributes(check.authorizer.user, "", check.group, "*", resource)
    return ResourceCheck(check.authorizer.decide, attributes)


def _subresource(check: ResourceCheck, value: str) -> ResourceCheck:
    return ResourceCheck(check.decide, replace(check.attributes, subresource=value))


def _namespace(check: ResourceCheck, value: str) -> ResourceCheck:
    return ResourceCheck(check.decide, replace(check.attributes, namespace=value))


def _name(check: ResourceCheck, value: str) -> ResourceCheck:
    return ResourceCheck(check.decide, replace(check.attributes, name=value))


def _check(check: ResourceCheck | PathCheck, verb: str) -> Decision:
    return check.decide(replace(check.attributes, verb=verb))


def _cost(*_: object) -> int:
    return CHECK_COST


library = Library("authorizer")
library.add("path", "authorizer_path", (AUTHORIZER, STRING), PATH_CHECK,
            lambda authorizer, path: PathCheck(authorizer.decide, Attributes(authorizer.user, "", path=path)),
            member=True)  # fmt: skip
library.add("group", "authorizer_group", (AUTHORIZER, STRING), GROUP_CHECK, GroupCheck, member=True)
library.add("serviceAccount", "authorizer_serviceaccount", (AUTHORIZER, STRING, STRING), AUTHORIZER,
            _service_account, member=True)  # fmt: skip
library.add("resource", "groupcheck_resource", (GROUP_CHECK, STRING), RESOURCE_CHECK, _resource, member=True)
for _word, _narrowed in (("subresource", _subresource), ("namespace", _namespace), ("name", _name)):
    library.add(_word, f"resourcecheck_{_word}", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, _narrowed, member=True)
library.add("check", "resourcecheck_check", (RESOURCE_CHECK, STRING), DECISION, _check, member=True, cost=_cost)
library.add("check", "pathcheck_check", (PATH_CHECK, STRING), DECISION, _check, member=True, cost=_cost)
library.add("allowed", "decision_allowed", (DECISION,), BOOL, lambda decision: decision.allowed, member=True)
library.add("reason", "decision_reason", (DECISION,), STRING, lambda decision: decision.reason, member=True)
library.add("errored", "decision_errored", (DECISION,), BOOL, lambda decision: False, member=True)
library.add("error", "decision_error", (DECISION,), STRING, lambda decision: "", member=True)
