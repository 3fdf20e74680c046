import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.cli.lint import lint

GOOD = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: gpu
spec:
  selectors:
  - cel:
      expression: device.driver == "gpu.example.com"
"""


def run(*arguments: str, stdin: str | None = None):
    return CliRunner().invoke(lint, list(arguments), input=stdin)


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


def test_a_good_manifest_says_only_that_it_was_read(write):
    result = run("-f", write("class.yaml", GOOD))
    assert (result.stdout, result.stderr, result.exit_code) == ("", "1 object, no problems\n", 0)


def test_the_number_of_objects_and_problems_is_said(write):
    write("many/twelve.yaml", "---\n".join(GOOD.replace("name: gpu", f"name: gpu-{n}") for n in range(12)))
    folder = str(Path(write("many/empty.yaml", "")).parent)
    assert run("-f", folder).stderr == "12 objects, no problems\n"
    write("many/wrong.yaml", GOOD.replace("name: gpu", "name: GPU"))
    result = run("-f", folder)
    assert (result.stderr, result.exit_code) == ("13 objects, 1 error\n", 1)


@pytest.mark.parametrize("word", ["n", "N", "y", "no", "No", "yes", "on", "OFF", "true", "1e3", "012"])
def test_a_name_that_yaml_does_not_read_as_text_is_an_error(write, word):
    path = write("class.yaml", GOOD.replace("name: gpu", f"name: {word}"))
    result = run("-f", path)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{path}:4: error: metadata.name: ")
    assert result.stdout.rstrip().endswith("write it in quotes")
    assert run("-f", write("quoted.yaml", GOOD.replace("name: gpu", f"name: {word.lower()!r}"))).exit_code == 0


def test_every_bare_word_of_a_file_is_found(write):
    labelled = GOOD.replace("metadata:\n", "metadata:\n  labels: {a: y, b: 'n'}\n  annotations:\n    c: off\n")
    found = run("-f", write("class.yaml", labelled)).stdout
    assert [row.split(": ")[2] for row in found.splitlines()] == ["metadata.labels[a]", "metadata.annotations[c]"]
    assert "false is a boolean, as YAML reads n, no, off and false: write it in quotes" in found


@pytest.mark.parametrize(
    ("version", "kind", "said"),
    [
        (
            "resource.k8s.io/v1",
            "DeviceClas",
            'no kind "DeviceClas" in version "resource.k8s.io/v1", did you mean DeviceClass?',
        ),
        ("resource.k8s.io/v1", "Resourceclaim", "did you mean ResourceClaim?"),
        ("v1", "pod", "did you mean Pod?"),
        ("apps/v1", "Deploymnet", "did you mean Deployment?"),
        ("v1", "Banana", 'no kind "Banana" in version "v1"'),
        ("resource.k8s.oi/v1", "DeviceClass", "did you mean resource.k8s.io?"),
    ],
)
def test_a_misspelt_kind_is_an_error(version, kind, said):
    result = run("-f", "-", stdin=f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n")
    assert result.exit_code == 1
    assert said in result.stdout
    assert ": error: " in result.stdout


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        pytest.param(
            "selectors:", "selektors:", 6, 'unknown field "spec.selektors", did you mean selectors?', id="typo"
        ),
        pytest.param(
            "cel:\n      expression: device.driver",
            "cel: device.driver",
            7,
            'write {"expression":"device.driver == \\"gpu.example.com\\""} instead of',
            id="bare-selector",
        ),
        pytest.param("device.driver", "device.drivr", 8, "undefined field 'drivr'", id="cel"),
        pytest.param("name: gpu", "name: GPU", 4, "a lowercase RFC 1123 subdomain", id="rule"),
        pytest.param("metadata:\n", "metadata:\n  name: twice\n", 5, 'duplicate field "metadata.name"', id="duplicate"),
        pytest.param("io/v1\n", "io/v1beta7\n", 1, "but in resource.k8s.io/v1, ", id="version"),
        pytest.param("kind: DeviceClass\n", "", 1, "kind is missing", id="no-kind"),
        pytest.param("  selectors:", "selectors: [", 7, "invalid YAML", id="yaml"),
        pytest.param("spec:\n", "spec: []\n", 5, "cannot unmarshal array", id="type"),
    ],
)
def test_findings_have_file_line_and_reason(write, old, new, line, message):
    text = GOOD.replace(old, new)
    if new == "spec: []\n":
        text = text[: text.index("spec: []")] + "spec: []\n"
    path = write("class.yaml", text)
    result = run("-f", path)
    assert result.exit_code == 1
    found = [row for row in result.output.splitlines() if message in row]
    assert found, result.output
    assert found[0].startswith(f"{path}:{line}: error: ")


def test_directories_lists_and_standard_input(write):
    write("sub/a.yaml", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  spec: {containrs: []}\n")
    write("sub/b.json", '{"apiVersion": "v1", "kind": "Pod", "speck": {}}')
    write("sub/notes.txt", "not a manifest")
    directory = str(Path(write("sub/c.yml", GOOD)).parent)
    output = run("-f", directory).output
    assert "a.yaml:6: error: spec.containrs" in output
    assert "b.json:1: error: speck" in output
    assert "notes" not in output
    assert run("-f", "-", stdin=GOOD).exit_code == 0
    assert run("-f", "-", stdin=GOOD.replace("name: gpu", "name: -")).output.startswith("-:4: error: ")


def test_gates_tell_what_the_server_drops(write):
    path = write(
        "claim.yaml",
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\nspec:\n  devices:\n    requests:\n"
        "    - name: a\n      exactly:\n        deviceClassName: gpu\n        tolerations: [{operator: Exists}]\n",
    )
    assert run("-f", path).stdout == ""
    result = run("-f", path, "--emulate", "1.34")
    assert "claim.yaml:10: warning: " in result.output
    assert "feature gate DRADeviceTaints is off" in result.output
    assert result.exit_code == 0
    assert (
        "DRADeviceTaints"
        in run("-f", path, "--feature-gates", "DRADeviceTaints=false,DRADeviceTaintRules=false").output
    )


def test_old_spellings_and_versions_are_pointed_out(write):
    path = write(
        "slice.yaml",
        "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceSlice\nmetadata: {name: s}\nspec:\n  driver: Gpu.example.com\n"
        "  nodeName: n1\n  pool: {name: n1, resourceSliceCount: 1}\n  devices:\n  - name: d\n    basic:\n"
        "      nativeResourceMappings:\n        cpu: {quantityFrom: {perInstanceQuantity: 2}}\n",
    )
    result = run("-f", path)
    assert result.exit_code == 0
    assert "slice.yaml:1: warning: apiVersion: resource.k8s.io/v1beta1 ResourceSlice is deprecated" in result.output
    assert "slice.yaml:5: warning: spec.driver: driver names should be lowercase" in result.output
    assert "slice.yaml:11: hint: " in result.output


def test_admin_access_needs_a_labelled_namespace_only_where_we_see_it(write):
    claim = (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c, namespace: ns}\nspec:\n  devices:\n"
        "    requests:\n    - name: a\n      exactly: {deviceClassName: gpu, adminAccess: true}\n"
    )
    assert run("-f", "-", stdin=claim).exit_code == 0
    namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: ns\n"
    assert "admin access" in run("-f", "-", stdin=claim + namespace).output
    labelled = namespace + '  labels: {resource.kubernetes.io/admin-access: "true"}\n'
    assert run("-f", "-", stdin=claim + labelled).exit_code == 0


def test_json_output(write):
    path = write("class.yaml", GOOD.replace("name: gpu", "name: GPU"))
    (finding,) = json.loads(run("-f", path, "-o", "json").stdout)
    assert finding["file"] == path
    assert (finding["line"], finding["severity"], finding["path"]) == (4, "error", "metadata.name")


@pytest.mark.parametrize(
    "arguments",
    [(), ("-f", "/no/such/file"), ("-f", "-", "--feature-gates", "Nope=true"), ("-f", "-", "--emulate", "1.0")],
)
def test_wrong_usage(arguments):
    assert run(*arguments, stdin="").exit_code == 2


def test_unknown_kinds_are_not_errors():
    result = run("-f", "-", stdin="apiVersion: example.com/v1\nkind: Thing\n")
    assert result.exit_code == 0
    assert "was not checked" in result.output
