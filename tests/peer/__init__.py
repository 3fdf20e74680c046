"""Dray together with Kubernetes' own programs, on loopback. They are not part of the project: `KUBE` names the folder that has them.

    KUBE=.../bin .venv/bin/python -m pytest tests/peer -m torture -s

`test_mixes` runs every mix of API server, scheduler and controllers of both; `test_specs` Kubernetes' own test suite against Dray;
`test_real_kubelet` a real kubelet with containerd on Dray's API server. Without the folder, or without one of the programs, a
test is skipped and says what is missing. docs/running-against-a-cluster.md has what came out, by version.
"""
