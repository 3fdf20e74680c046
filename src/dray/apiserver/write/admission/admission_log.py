"""What admission wants to be remembered of a write, in place of an audit event."""

import logging

from dray.api.jsontext import go_json
from dray.apiserver.write.admission.chain import Admission

audit = logging.getLogger("dray.audit")


def remember(admission: Admission, what: str) -> None:
    """One line of the log, whatever a user put into names and values."""
    asked = admission.attributes
    place = "/".join(part for part in (asked.resource, asked.subresource, asked.namespace, admission.name) if part)
    audit.info("%s %s %s: %s", admission.user.name, admission.operation.lower(), place, go_json(what))
