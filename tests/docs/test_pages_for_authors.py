"""The pages for driver and test authors: their Python is run, their manifests become what the pages say."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dray.apiserver.security.certificates import Authority
from dray.testing import cluster
from dray.testing.driver_checks import check_driver
from dray.testing.driver_process import Target

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


def blocks(page, language):
    """The code of the page in this language, by the heading above it."""
    found = {}
    for section in re.split(r"^## ", (DOCS / page).read_text(), flags=re.MULTILINE):
        heading = section.partition("\n")[0]
        found[heading] = re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return found


def program(heading):
    (code,) = blocks("writing-a-driver.md", "python")[heading]
    return code


def manifests(heading):
    (text,) = blocks("writing-a-driver.md", "yaml")[heading]
    return text


def driver_class(code, name):
    values = {"__name__": "example"}
    exec(compile(code, name, "exec"), values)
    return values[name]


def fan_driver():
    return driver_class((ROOT / "examples/driver/fan_driver.py").read_text(), "FanDriver")


def as_pod(text, name, other):
    """Only the pod of this name out of the manifests, as another."""
    (pod,) = [each for each in text.split("---\n") if "kind: Pod" in each and f"name: {name}}}" in each]
    return pod.replace(f"metadata: {{name: {name}}}", f"metadata: {{name: {other}}}")


# --- writing a driver -----------------------------------------------------------------------------------------------------


def test_every_example_of_the_page_is_run_here():
    text = Path(__file__).read_text()
    headings = [
        heading
        for language in ("python", "yaml")
        for heading, found in blocks("writing-a-driver.md", language).items()
        if found
    ]
    assert [heading for heading in headings if f'"{heading}"' not in text] == []
    assert len(headings) >= 9


def test_a_fan_turns_fast():
    with cluster(drivers=[fan_driver()()]) as c:
        c.apply(manifests("Running it"))
        c.wait_for_log("cool", "FAN_0=high")


@pytest.mark.skipif(os.geteuid() != 0, reason="files are mounted into processes by root only")
def test_a_container_reads_the_attributes_of_its_fan():
    with cluster(drivers=[fan_driver()()]) as c:
        text = manifests("Running it")
        pod = yaml.safe_load(as_pod(text, "cool", "cool"))
        pod["spec"]["containers"][0]["command"] = [sys.executable, "-c", program("What containers can read")]
        pod["spec"]["restartPolicy"] = "Never"
        c.apply(text.partition("---\napiVersion: v1\nkind: Pod")[0], pod)
        c.wait_until_succeeded("cool")
        assert c.logs("cool") == "fan.example.com fan-0 {'int': 3}\n"
    assert "`fan.example.com fan-0 {'int': 3}`" in (DOCS / "writing-a-driver.md").read_text()


def test_two_halves_of_a_card_and_then_the_whole_one():
    with cluster(drivers=[driver_class(program("Partitions"), "CardDriver")()]) as c:
        text = manifests("Partitions")
        c.apply(text.partition("---\napiVersion: v1\nkind: Pod")[0])
        c.apply(as_pod(text, "half", "half"), as_pod(text, "half", "second-half"))
        c.wait_for_log("half", "card-0-half-")
        c.wait_until_running("second-half")
        c.apply(as_pod(text, "whole", "whole"))
        assert "cannot allocate all claims" in c.wait_until_unschedulable("whole")
        c.delete("pod/half", "pod/second-half")
        c.wait_for_log("whole", "card-0")


def test_a_link_is_shared_until_it_is_full():
    with cluster(drivers=[driver_class(program("Shares"), "LinkDriver")()]) as c:
        text = manifests("Shares")
        c.apply(text)
        assert "LINK_SHARE=" in c.wait_for_log("sender", "LINK_BANDWIDTH=60G")
        c.apply(as_pod(text, "sender", "second"))
        c.wait_until_unschedulable("second")


def test_a_broken_pump_is_reported_and_avoided(tmp_path):
    driver = driver_class(program("Health and broken devices"), "PumpDriver")(tmp_path)
    with cluster(drivers=[driver]) as c:
        text = manifests("Health and broken devices")
        c.apply(text)
        c.wait_until_running("cellar")
        (tmp_path / "pump-0").touch()

        def health():
            (container,) = c.objects("pods")[0]["status"]["containerStatuses"]
            return str(container.get("allocatedResourcesStatus"))

        c.wait_until(lambda: "'health': 'Unhealthy', 'message': 'it leaks'" in health(), "bad news", state=health)
        c.delete("pod/cellar")
        c.apply(as_pod(text, "cellar", "next"))
        c.wait_until_running("next")
        assert c.devices_of("next") == ["pump.example.com/node-1/pump-1"]


@pytest.mark.torture
@pytest.mark.parametrize("heading", ["Partitions", "Shares", "Health and broken devices"])
async def test_the_drivers_of_the_page_conform(tmp_path, heading):
    file = tmp_path / "driver.py"
    file.write_text(program(heading))
    verdicts = [each async for each in check_driver(Target.parse(str(file)), 30.0)]
    assert [each for each in verdicts if each.problem or each.warning] == []


async def test_the_webhook_of_the_page_starts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pair = Authority.create("webhook-ca").issue_server("webhook", ("127.0.0.1",))
    Path("tls.crt").write_bytes(pair.certificate_pem)
    Path("tls.key").write_bytes(pair.key_pem)
    code = program("Checking parameters when they are written").replace('"0.0.0.0", 8443', '"127.0.0.1", 0')
    values = {"FanDriver": fan_driver()}
    await eval(compile(code, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), values)
    await values["webhook"].stop()
    (text,) = blocks("writing-a-driver.md", "yaml")["Checking parameters when they are written"]
    assert "ValidatingWebhookConfiguration" in text


# --- testing with a cluster -----------------------------------------------------------------------------------------------


def test_the_page_about_tests_is_a_test_file_that_passes(tmp_path):
    code = "\n\n".join(code for found in blocks("testing.md", "python").values() for code in found)
    (tmp_path / "test_page.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "dray.testing.pytest_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "test_page.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert f"{code.count('def test_') + 1} passed" in done.stdout, "one of them has two parameters"


def test_the_page_names_every_helper():
    from dray.testing import Cluster

    text = (DOCS / "testing.md").read_text()
    helpers = [name for name in vars(Cluster) if not name.startswith("_")]
    waiting = {f"wait_until_{each}" for each in ("succeeded", "unschedulable", "gone")}
    assert [name for name in helpers if f"c.{name}" not in text and name not in waiting | {"delete_pod"}] == []
