"""Writes the templates of the Helm chart from the manifests in deploy/base, so that both are one; --check only compares.

Each template is the manifest with the places where a user may choose: image, namespace, replicas, release of Kubernetes, driver.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BASE = ROOT / "deploy" / "base"
CHART = ROOT / "deploy" / "chart"
# Template to the switch that includes it.
PARTS = {
    "scheduler": "scheduler",
    "controller-manager": "controllerManager",
    "driver": "driver",
    "driver-policy": "driver",
}
CHOICES = (
    ("dray-system", "{{ .Release.Namespace }}"),
    ("image: dray\n", 'image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"\n'),
    ("--emulate=1.37", "--emulate={{ .Values.kubernetesRelease }}"),
    ("args: [driver, gpu]", "args: [driver, {{ .Values.driver.name }}]"),
    ("dray-driver-gpu", "dray-driver-{{ .Values.driver.name }}"),
)
REPLICAS = {
    "scheduler": ("replicas: 1\n", "replicas: {{ .Values.scheduler.replicas }}\n"),
    "controller-manager": ("replicas: 0\n", "replicas: {{ .Values.controllerManager.replicas }}\n"),
}


def template_of(part: str) -> str:
    text = (BASE / f"{part}.yaml").read_text()
    assert "{{" not in text, f"{part}.yaml has braces, which a template would read"
    choices = (*CHOICES, REPLICAS[part]) if part in REPLICAS else CHOICES
    for written, choice in choices:
        text = text.replace(written, choice)
    return f"{{{{- if .Values.{PARTS[part]}.enabled }}}}\n{text}{{{{- end }}}}\n"


def main() -> int:
    stale = []
    for part in PARTS:
        path = CHART / "templates" / f"{part}.yaml"
        text = template_of(part)
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.write_text(text)
    if stale and "--check" in sys.argv:
        print(*(f"{path} is not what deploy/base says: run make fix" for path in stale), sep="\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
