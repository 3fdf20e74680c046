"""`dray doctor`: known traps of a cluster, each as one finding with its cause and its remedy.

`examine` runs all checks; `claim_findings`, `device_findings` and `pod_findings` hold them, `finding` what they share.
"""

from dray.explain.doctor.examine import CdiFileNames, examine, held_up_pods, why_not_started
from dray.explain.doctor.finding import DoctorFinding, error, warning

__all__ = ["CdiFileNames", "DoctorFinding", "error", "examine", "held_up_pods", "warning", "why_not_started"]
