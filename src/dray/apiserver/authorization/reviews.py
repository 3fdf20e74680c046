"""Questions about access: SelfSubjectReview, TokenReview, and the access and rules reviews.

Each takes the review as sent and answers it with its status filled in. Nothing is stored.
"""

from dataclasses import dataclass
from typing import Any

from dray.apiserver import errors
from dray.apiserver.attributes import Attributes, Authorizer, Document, FieldRequirement
from dray.apiserver.authentication.authenticator import Authenticator
from dray.apiserver.authentication.json_web_token import InvalidToken
from dray.apiserver.authentication.service_accounts import ISSUER, ServiceAccountTokens
from dray.apiserver.authorization.rbac import RbacIndex
from dray.apiserver.authorization.rules import Rule
from dray.apiserver.errors import OptionError
from dray.apiserver.identity import User
from dray.clock import Clock, rfc3339

AUTHORIZATION = "authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class Reviews:
    authorizer: Authorizer
    rbac: RbacIndex
    authenticator: Authenticator
    service_accounts: ServiceAccountTokens
    clock: Clock

    async def answer(self, kind: str, review: Document, user: User, namespace: str = "") -> Document:
        """The review with its status. Raises 400 or 422 for a review that makes no sense."""
        if kind == "SelfSubjectReview":
            return self._self(review, user)
        if kind == "TokenReview":
            return await self._token(review)
        if kind == "SelfSubjectRulesReview":
            return self._rules(review, user)
        if kind == "SelfSubjectAccessReview":
            return await self._access(review, user)
        if kind == "LocalSubjectAccessReview":
            _check_local(review, namespace)
        return await self._access(review, _named_user(kind, review))

    def _self(self, review: Document, user: User) -> Document:
        metadata = {**(review.get("metadata") or {}), "creationTimestamp": rfc3339(self.clock.now())}
        return {**review, "metadata": metadata, "status": {"userInfo": user_document(user)}}

    async def _token(self, review: Document) -> Document:
        spec = review.get("spec") or {}
        token, audiences = spec.get("token") or "", spec.get("audiences") or []
        if not token:
            raise _invalid("authentication.k8s.io", "TokenReview", "spec.token", "Required value: token is required")
        status: Document = {"user": {}, "error": "invalid bearer token"}
        try:
            user, matched = await self.service_accounts.user(token, audiences or (ISSUER,))
            status = {"authenticated": True, "user": user_document(user), "audiences": list(matched)}
        except InvalidToken:
            if not audiences and (static := await self.authenticator.token_user(token)):
                status = {"authenticated": True, "user": user_document(static), "audiences": [ISSUER]}
        return {**review, "status": status}

    async def _access(self, review: Document, user: User) -> Document:
        attributes = _attributes(review.get("kind", ""), review.get("spec") or {}, user)
        decision = await self.authorizer.authorize(attributes)
        status: Document = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return {**review, "status": status}

    def _rules(self, review: Document, user: User) -> Document:
        namespace = (review.get("spec") or {}).get("namespace") or ""
        if not namespace:
            raise errors.bad_request("no namespace on request")
        held = self.rbac.rules_for(user, namespace)
        status = {
            "resourceRules": [_resource_rule(rule) for rule in held if rule.resources],
            "nonResourceRules": [
                {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.non_resource_urls)}
                for rule in held
                if rule.non_resource_urls
            ],
            "incomplete": bool(user.node_name),
        }
        if user.node_name:
            status["evaluationError"] = "node authorizer does not support user rule resolution"
        return {**review, "status": status}


def user_document(user: User) -> Document:
    document: Document = {"username": user.name}
    if user.uid:
        document["uid"] = user.uid
    if user.groups:
        document["groups"] = list(user.groups)
    if user.extra:
        document["extra"] = {key: list(values) for key, values in user.extra.items()}
    return document


def _resource_rule(rule: Rule) -> Document:
    found: Document = {
        "verbs": list(rule.verbs),
        "apiGroups": list(rule.api_groups),
        "resources": list(rule.resources),
    }
    if rule.resource_names:
        found["resourceNames"] = list(rule.resource_names)
    return found


def _named_user(kind: str, review: Document) -> User:
    spec = review.get("spec") or {}
    name, groups = spec.get("user") or "", spec.get("groups") or []
    if not name and not groups:
        text = 'Invalid value: "": at least one of user or group must be specified'
        raise _invalid(AUTHORIZATION, kind, "spec.user", text)
    extra = {key.lower(): tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    return User(name, tuple(groups), spec.get("uid") or "", extra)


def _check_local(review: Document, namespace: str) -> None:
    asked = ((review.get("spec") or {}).get("resourceAttributes") or {}).get("namespace") or ""
    if (review.get("spec") or {}).get("nonResourceAttributes"):
        text = "Invalid value: null: disallowed on this kind of request"
        raise _invalid(AUTHORIZATION, "", "spec.nonResourceAttributes", text)
    if asked != namespace:
        raise errors.bad_request(f"spec.resourceAttributes.namespace must match namespace: {namespace}")


def _attributes(kind: str, spec: Document, user: User) -> Attributes:
    resource, plain = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (plain is None):
        both = resource is not None
        text = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        if both:
            field = "spec.nonResourceAttributes"
            text = "Invalid value: null: cannot be specified in combination with resourceAttributes"
        else:
            field = "spec"
        raise _invalid(AUTHORIZATION, "", field, text)
    if plain is not None:
        return Attributes(user, plain.get("verb") or "", path=plain.get("path") or "")
    return Attributes(
        user,
        resource.get("verb") or "",
        resource.get("group") or "",
        resource.get("version") or "",
        resource.get("resource") or "",
        resource.get("subresource") or "",
        resource.get("namespace") or "",
        resource.get("name") or "",
        field_requirements=tuple(_field_requirements(resource)),
    )


def _field_requirements(resource: Document) -> list[FieldRequirement]:
    """What a review says about the fields a list would be restricted to; only single values restrict."""
    requirements: list[Any] = (resource.get("fieldSelector") or {}).get("requirements") or []
    found = []
    for requirement in requirements:
        values = requirement.get("values") or []
        if requirement.get("operator") == "In" and len(values) == 1:
            found.append(FieldRequirement(requirement.get("key") or "", "=", values[0]))
    return found


def _invalid(group: str, kind: str, field: str, text: str) -> errors.ApiError:
    kind_of_error = text.partition(" value")[0]
    return errors.invalid(group, kind, "", [OptionError(kind_of_error, field, text)])
