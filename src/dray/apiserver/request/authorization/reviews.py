"""Questions about access: SelfSubjectReview, TokenReview, and the access and rules reviews.

Each takes the review as sent and answers it with its status filled in. Nothing is stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dray.api.jsontext import go_json
from dray.api.safe_get import (
    mapping,
    mappings,
    part,
    strings,
    text,
)
from dray.apiserver import errors
from dray.apiserver.errors import OptionError
from dray.apiserver.request.authentication.authenticator import Authenticator
from dray.apiserver.request.authentication.json_web_token import InvalidToken
from dray.apiserver.request.authentication.service_account_tokens import (
    ISSUER,
    ServiceAccountTokens,
)
from dray.apiserver.request.authorization.rbac import PolicyRule, RbacIndex
from dray.apiserver.request.request_info import Attributes, Authorizer, Document, FieldRequirement, User
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
        problems = list(_problems(kind, review, namespace))
        if problems:
            # Kubernetes does not know the kind's name at this point.
            raise errors.invalid(AUTHORIZATION, "", "", problems)
        return await self._access(review, user if kind == "SelfSubjectAccessReview" else _named_user(review))

    def _self(self, review: Document, user: User) -> Document:
        metadata = {**(review.get("metadata") or {}), "creationTimestamp": rfc3339(self.clock.now())}
        return {**review, "metadata": metadata, "status": {"userInfo": user_document(user)}}

    async def _token(self, review: Document) -> Document:
        token, audiences = text(review, "spec", "token"), strings(review, "spec", "audiences")
        if not token:
            raise errors.bad_request("token is required for TokenReview in authentication")
        status: Document = {"user": {}, "error": "invalid bearer token"}
        try:
            user, matched = await self.service_accounts.user(token, audiences or (ISSUER,))
            status = {"authenticated": True, "user": user_document(user), "audiences": list(matched)}
        except InvalidToken:
            if not audiences and (static := await self.authenticator.token_user(token)):
                status = {"authenticated": True, "user": user_document(static), "audiences": [ISSUER]}
        return {**review, "status": status}

    async def _access(self, review: Document, user: User) -> Document:
        attributes = _attributes(mapping(review, "spec"), user)
        decision = await self.authorizer.authorize(attributes)
        status: Document = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return {**review, "status": status}

    def _rules(self, review: Document, user: User) -> Document:
        namespace = text(review, "spec", "namespace")
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


def _resource_rule(rule: PolicyRule) -> Document:
    found: Document = {
        "verbs": list(rule.verbs),
        "apiGroups": list(rule.api_groups),
        "resources": list(rule.resources),
    }
    if rule.resource_names:
        found["resourceNames"] = list(rule.resource_names)
    return found


def _problems(kind: str, review: Document, namespace: str) -> Iterator[OptionError]:
    spec = mapping(review, "spec")
    resource, plain = (part(spec, name) for name in ("resourceAttributes", "nonResourceAttributes"))
    if resource is not None and plain is not None:
        yield _invalid(
            "spec.nonResourceAttributes", _shown(plain), "cannot be specified in combination with resourceAttributes"
        )
    if resource is None and plain is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield _invalid("spec", None, why)
    if kind != "SelfSubjectAccessReview" and not text(spec, "user") and not strings(spec, "groups"):
        yield _invalid("spec.user", "", "at least one of user or group must be specified")
    local = kind == "LocalSubjectAccessReview"
    free = {"managedFields", "namespace"} if local else {"managedFields"}
    metadata = mapping(review, "metadata")
    if any(value for key, value in metadata.items() if key not in free):
        yield _invalid("metadata", metadata, "must be empty except for namespace" if local else "must be empty")
    if not local:
        return
    said = text(spec, "resourceAttributes", "namespace")
    if resource is not None and said != namespace:
        yield _invalid("spec.resourceAttributes.namespace", said, "must match metadata.namespace")
    if plain is not None:
        yield _invalid("spec.nonResourceAttributes", _shown(plain), "disallowed on this kind of request")


def _shown(plain: Any) -> Document:
    """As Kubernetes prints its own, inner form of it."""
    return {"Path": text(plain, "path"), "Verb": text(plain, "verb")}


def _named_user(review: Document) -> User:
    name, groups = text(review, "spec", "user"), strings(review, "spec", "groups")
    extra = {key.lower(): tuple(values or ()) for key, values in mapping(review, "spec", "extra").items()}
    return User(name, tuple(groups), text(review, "spec", "uid"), extra)


def _attributes(spec: Document, user: User) -> Attributes:
    if part(spec, "nonResourceAttributes") is not None:
        plain = mapping(spec, "nonResourceAttributes")
        return Attributes(user, text(plain, "verb"), path=text(plain, "path"))
    asked = mapping(spec, "resourceAttributes")
    return Attributes(
        user,
        text(asked, "verb"),
        text(asked, "group"),
        text(asked, "version"),
        text(asked, "resource"),
        text(asked, "subresource"),
        text(asked, "namespace"),
        text(asked, "name"),
        field_requirements=_field_requirements(asked),
    )


def _field_requirements(resource: Document) -> tuple[FieldRequirement, ...]:
    """What a review says about the fields a list would be restricted to; only single values restrict."""
    return tuple(
        FieldRequirement(text(requirement, "key"), "=", strings(requirement, "values")[0])
        for requirement in mappings(resource, "fieldSelector", "requirements")
        if requirement.get("operator") == "In" and len(strings(requirement, "values")) == 1
    )


def _invalid(field: str, value: Any, why: str) -> OptionError:
    return OptionError("Invalid", field, f"Invalid value: {go_json(value)}: {why}")
