"""Every command on every page: run against a cluster, or, where it would install or never end, read by the command itself."""

import json
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dray.cli.main import cli
from dray.testing import cluster
from tests.docs.reader import ROOT, Reader

# Followed to the letter elsewhere, or made from the commands themselves.
ELSEWHERE = ("README.md", "docs/getting-started.md", "docs/reference/commands.md")
FEATURES = sorted(each for each in (ROOT / "docs" / "features").glob("*.md") if each.name != "README.md")
_LINE = re.compile(r"^ *\$? *((?:dray|kubectl) [^\n]*)$", re.M)
_INLINE = re.compile(r"`((?:dray|kubectl) [^`]+)`")
# They run until they are told to end, need another machine, or change it; starting them is tested in their rooms.
STAY = re.compile(
    r"dray (up|down|apiserver|controller-manager|scheduler|kubelet|dashboard|driver|bench|kubeconfig|top|completion|allocate|vectors|demo|proof|backup|restore)\b"
    r"|dray doctor .*--cdi-dir /var/run|kubectl (apply -k|create clusterrole|drain|apply -f \"\$)"
)
# Words that stand for something of the reader's.
STAND_INS = re.compile(r"\.\.\.|…|COMMAND|\bNAME\b|NAMESPACE|\bFILE\b|KIND|EXPR|--context |\bcellar\b|^kubectl / ")


def pages() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(each for each in found if str(each.relative_to(ROOT)) not in ELSEWHERE)


def commands(page: Path) -> list[str]:
    text = page.read_text()
    return [re.sub(r"\s+# .*", "", line).strip() for line in _LINE.findall(text)]


def runs(page: Path) -> list[str]:
    return [line for line in commands(page) if not STAY.match(line) and not STAND_INS.search(line)]


# --- every command is one that dray knows ----------------------------------------------------------------------------


def is_understood(line: str) -> None:
    """The command and its options exist; what they name need not."""
    words = shlex.split(line.partition(" | ")[0].partition(" > ")[0].partition(" || ")[0])[1:]
    if not words or words[0].startswith("-"):
        return
    group: click.Command | None = cli
    context = click.Context(cli)
    while isinstance(group, click.Group) and words and not words[0].startswith("-"):
        inner = group.get_command(context, words[0])
        if inner is None:
            break
        group, context, words = inner, click.Context(inner, parent=context, **inner.context_settings), words[1:]
    assert group is not None
    assert group is not cli, f"there is no {line}"
    group.make_parser(context).parse_args(words)


def documented() -> list[tuple[str, str]]:
    found: dict[tuple[str, str], None] = {}
    for page in [*pages(), ROOT / "README.md", ROOT / "docs" / "getting-started.md"]:
        for line in [*commands(page), *_INLINE.findall(page.read_text())]:
            if line.startswith("dray "):
                found[str(page.relative_to(ROOT)), " ".join(line.split())] = None
    return list(found)


def test_dray_understands_every_command_that_is_documented() -> None:
    problems = []
    for page, line in documented():
        if "..." in line or "…" in line or re.match(r"dray [A-Z]", line):
            continue
        try:
            is_understood(line)
        except click.BadOptionUsage:
            continue  # The option is there; a sentence names it without a value.
        except (click.UsageError, AssertionError) as problem:
            problems.append(f"{page}: {line}: {problem}")
    assert not problems, "\n".join(problems)


# --- and runs --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory):
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not on the PATH")
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "examples", folder / "examples")
    with cluster(nodes=3, devices=("gpu", "cpu", "nic")) as running:
        one = Reader(folder, running.kubeconfig)
        one.run("kubectl apply -f examples/gpu/classes.yaml")
        yield one


def clean_up(reader: Reader, lines: list[str]) -> None:
    files = [word for line in lines for word in re.findall(r"-f (examples/\S+)", line)]
    arguments = " ".join(f"-f {each}" for each in dict.fromkeys(reversed(files)) if "-met." not in each)
    if arguments:
        reader.run(f"kubectl delete {arguments} --ignore-not-found --timeout=60s")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", FEATURES, ids=lambda page: page.stem)
def test_a_feature_works_as_its_page_says(page: Path, reader: Reader) -> None:
    lines: list[str] = []
    try:
        lines = reader.follow(page.read_text())
    finally:
        clean_up(reader, lines or runs(page))
    assert lines == runs(page)


@pytest.fixture(scope="module")
def prepared(reader: Reader) -> Reader:
    """What the pages of the tools name: a pod, its dump, a claim, a node in a file."""
    folder = reader.folder
    assert reader.kubeconfig is not None
    shutil.copy(reader.kubeconfig, folder / "kubeconfig")
    claim: dict[str, object] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "held"},
    }
    claim["spec"] = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    (folder / "held.json").write_text(json.dumps(claim))
    reader.run("kubectl apply -f held.json")
    reader.run("kubectl create namespace ml --dry-run=client -o yaml | kubectl apply -f -")
    reader.run("kubectl apply -f examples/gpu/one-gpu.yaml")
    reader.run("kubectl wait --for=condition=Ready pod/one-gpu --timeout=60s")
    text = (folder / "examples/gpu/one-gpu.yaml").read_text().replace("name: one-gpu", "name: train")
    (folder / "train.yaml").write_text(
        text.replace("resourceClaimTemplateName: one-gpu", "resourceClaimTemplateName: train")
    )
    reader.run("kubectl apply -f train.yaml && kubectl apply -n ml -f train.yaml")
    reader.run("kubectl wait --for=condition=Ready pod/train --timeout=60s")
    shutil.copy(folder / "examples/gpu/one-gpu.yaml", folder / "claim.yaml")
    shutil.copytree(folder / "examples/gpu", folder / "manifests")
    kinds = "nodes,pods,resourceclaims,resourceclaimtemplates,resourceslices,deviceclasses"
    reader.run(f"kubectl get {kinds} -A -o yaml > dump.yaml && cp dump.yaml monday.yaml && cp dump.yaml friday.yaml")
    reader.run("kubectl get resourceslices -o yaml > slices.yaml")
    reader.run("kubectl get node/node-1 -o yaml > big.yaml")
    return reader


TOOLS = [
    (page, line)
    for page in pages()
    if page not in FEATURES
    for line in dict.fromkeys(runs(page))
    if not (page.name == "performance.md" or page.name == "CONTRIBUTING.md")
]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("page", "line"), TOOLS, ids=lambda each: each.stem if isinstance(each, Path) else None)
def test_a_command_of_a_page_runs(page: Path, line: str, prepared: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the answer yes or no; never wrong usage, a broken world or a traceback."""
    if not line.startswith("dray ") or re.search(r"[|>&]\s", line):
        prepared.run(line, codes=(0, 1) if "| dray" in line else (0,))
        return
    # In this process: starting another for each takes longer than the command.
    monkeypatch.chdir(prepared.folder)
    result = CliRunner().invoke(cli, shlex.split(line)[1:], env={"KUBECONFIG": str(prepared.kubeconfig)})
    assert result.exit_code in (0, 1), f"{line}\n{result.output}"
    assert result.exception is None or isinstance(result.exception, SystemExit), f"{line}\n{result.exception!r}"
