"""Webhooks: HTTPS servers outside that admit, change or convert objects.

`configurations` keeps the webhooks of the configurations that exist; `configuration_validation` finds mistakes in them. `invocation`
decides whether a webhook is called for a write and in which version it sees the object. `admission_review` writes the question and
reads the answer. `calling` sends the question: with a deadline, a limit on the answer and without redirects; `service_endpoints` finds the
address of a Service. The plugins that admit writes are in `dray.apiserver.write.admission.webhook_plugins`.
"""
