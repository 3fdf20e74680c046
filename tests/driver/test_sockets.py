"""Names of sockets: by convention where they fit, shorter ones where they do not, never the same for two drivers."""

from pathlib import Path

import pytest

from dray.driver.sockets import MAX_SOCKET_PATH, socket_paths

UID = "3fd1d2a4-6d1c-4a0b-9a55-0c1a6c1b7a11"


def registration(driver="gpu.example.com", registry="/var/lib/kubelet/plugins_registry", instance=UID):
    return socket_paths(driver, Path("/var/lib/kubelet/plugins") / driver, Path(registry), instance).registration


def test_without_instances_names_are_plain():
    sockets = socket_paths("gpu.example.com", Path("/p/gpu.example.com"), Path("/r"))
    assert str(sockets.service) == "/p/gpu.example.com/dra.sock"
    assert str(sockets.registration) == "/r/gpu.example.com-reg.sock"


def test_an_instance_is_in_both_names():
    sockets = socket_paths("gpu.example.com", Path("/p/gpu.example.com"), Path("/r"), UID)
    assert str(sockets.service) == f"/p/gpu.example.com/dra-{UID}.sock"
    assert str(sockets.registration) == f"/r/gpu.example.com-{UID}-reg.sock"


@pytest.mark.parametrize(
    ("driver", "registry", "begins"),
    [
        ("gpu.example.com", "/var/lib/kubelet/plugins_registry", f"gpu.example.com-{UID}"),
        ("a" * 40 + ".example.com", "/var/lib/kubelet/plugins_registry", "a" * 40 + ".example.com-"),
        ("a" * 51 + ".example.com", "/var/lib/kubelet/plugins_registry/deep", "dra-"),
    ],
)
def test_names_that_do_not_fit_are_shortened(driver, registry, begins):
    path = registration(driver, registry)
    assert path.name.startswith(begins)
    assert path.name.endswith("-reg.sock")
    assert len(str(path)) <= MAX_SOCKET_PATH
    assert path == registration(driver, registry), "always the same one"


def test_shortened_names_stay_apart():
    registry = "/var/lib/kubelet/plugins_registry/deep"
    drivers = [f"{'a' * 50}{number}.example.com" for number in range(10)]
    names = {registration(driver, registry, f"{UID}{n}") for driver in drivers for n in range(10)}
    assert len(names) == 100


def test_a_directory_that_leaves_no_room_is_told():
    with pytest.raises(OSError, match="its path is too long for a socket inside it"):
        registration(registry="/" + "x" * 100)
