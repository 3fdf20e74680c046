"""Parts of volumes: mounted as they were found, whatever a container makes of the volume meanwhile."""

import contextlib
import ctypes
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dray.kubelet import sub_paths
from dray.kubelet.container_specs import VolumeFolders
from dray.kubelet.errors import ContainerError
from dray.kubelet.runtime.isolation import available_isolation
from dray.kubelet.sub_paths import FOLDER, mounted_part, remove_parts

AT_FDCWD, RENAME_EXCHANGE = -100, 2
FOUND = available_isolation()
pytestmark = pytest.mark.skipif(isinstance(FOUND, str), reason=str(FOUND))


@pytest.fixture
def volume(tmp_path):
    made = tmp_path / "pods" / "uid" / "v"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def point(tmp_path, volume):
    pod = tmp_path / "pods" / "uid"
    yield pod / FOLDER / "c" / "0"
    assert remove_parts(pod)


@pytest.fixture
def secret(tmp_path):
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "key").write_text("SECRET")
    return folder


def test_a_folder_a_file_and_what_is_not_there_yet(volume, point):
    (volume / "file").write_text("here")
    assert mounted_part(volume, "file", point).read_text() == "here"
    (volume / "folder").mkdir()
    (volume / "folder" / "in").touch()
    assert os.listdir(mounted_part(volume, "./folder/", point)) == ["in"]
    mounted_part(volume, "new/deep", point).joinpath("made").touch()
    assert (volume / "new/deep/made").exists()


def test_links_within_the_volume_are_followed(volume, point):
    (volume / "a" / "b").mkdir(parents=True)
    (volume / "a" / "b" / "in").touch()
    (volume / "link").symlink_to("a/b")
    (volume / "a" / "up").symlink_to("../link")
    assert os.listdir(mounted_part(volume, "a/up", point)) == ["in"]


def test_absolute_links_to_places_in_the_volume_are_followed(volume, point):
    """A folder of the node often has such a link: `current` names the release in use."""
    (volume / "releases" / "2").mkdir(parents=True)
    (volume / "releases" / "2" / "in").touch()
    (volume / "current").symlink_to(volume / "releases" / "2")
    (volume / "top").symlink_to(volume)
    assert os.listdir(mounted_part(volume, "current", point)) == ["in"]
    assert os.listdir(mounted_part(volume, "top/releases", point)) == ["2"]
    mounted_part(volume, "top/current/new/deep", point).joinpath("made").touch()
    assert (volume / "releases/2/new/deep/made").exists()


def test_absolute_links_are_resolved_on_the_node(tmp_path, volume, point):
    (volume / "a").mkdir()
    (volume / "a" / "in").touch()
    (tmp_path / "short").symlink_to(volume)
    (volume / "link").symlink_to(tmp_path / "short" / "a")
    assert os.listdir(mounted_part(tmp_path / "short", "link", point)) == ["in"]


def test_an_absolute_link_to_nothing_makes_nothing(volume, point):
    (volume / "link").symlink_to(volume / "nothing")
    for sub_path in ("link", "link/made"):
        with pytest.raises(ContainerError, match="No such file"):
            mounted_part(volume, sub_path, point)
    assert os.listdir(volume) == ["link"]


def test_a_link_that_is_changed_after_it_was_resolved_leads_nowhere_else(volume, point, secret, monkeypatch):
    (volume / "part").mkdir()
    (volume / "link").symlink_to(volume / "part")
    resolve = sub_paths._without_links

    def replaced_meanwhile(*path) -> str:
        found = resolve(*path)
        (volume / "part").rmdir()
        (volume / "part").symlink_to(secret)
        return found

    monkeypatch.setattr(sub_paths, "_without_links", replaced_meanwhile)
    with pytest.raises(ContainerError, match="must not lead out of the volume"):
        mounted_part(volume, "link", point)


@pytest.mark.parametrize("target", ["/etc", "../../..", "/proc/self/root", "loop", "../secret"])
def test_links_out_of_the_volume_are_refused(volume, point, target):
    (volume / "loop").symlink_to(target)
    for sub_path in ("loop", "loop/made/by/root"):
        with pytest.raises(ContainerError, match="must not lead out of the volume"):
            mounted_part(volume, sub_path, point)
    assert not point.exists()


def test_a_link_to_nothing_makes_nothing(volume, point, secret):
    (volume / "link").symlink_to("nothing")
    with pytest.raises(ContainerError, match="No such file"):
        mounted_part(volume, "link/made", point)
    assert os.listdir(volume) == ["link"]


def test_a_link_that_is_put_there_while_the_part_is_mounted_changes_nothing(volume, point, secret, monkeypatch):
    """Between the moment in which the path is resolved and the mount, the container replaces it."""
    (volume / "part").mkdir()
    (volume / "part" / "mine").touch()
    remove = sub_paths._remove_mount

    def replaced_meanwhile(path: Path) -> None:
        (volume / "part").rename(volume / "away")
        (volume / "part").symlink_to(secret)
        remove(path)

    monkeypatch.setattr(sub_paths, "_remove_mount", replaced_meanwhile)
    assert os.listdir(mounted_part(volume, "part", point)) == ["mine"]
    monkeypatch.undo()
    assert os.listdir(point) == ["mine"]


def test_a_container_that_changes_the_path_all_the_time_never_gets_out(volume, point, secret):
    (volume / "a").mkdir()
    (volume / "link").symlink_to(secret)
    names = [os.fsencode(volume / each) for each in ("a", "link")]
    libc, stop = ctypes.CDLL(None, use_errno=True), threading.Event()

    def swap() -> None:
        while not stop.is_set():
            libc.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(300):
            with contextlib.suppress(ContainerError):
                assert os.listdir(mounted_part(volume, "a", point)) == []
    finally:
        stop.set()
        thread.join()


def test_the_volume_stays_when_the_pods_folder_goes(tmp_path, volume, point):
    on_the_node = tmp_path / "node"
    (on_the_node / "part").mkdir(parents=True)
    (on_the_node / "part" / "precious").touch()
    for number in range(2):
        mounted_part(on_the_node, "part", point.with_name(str(number)))
        mounted_part(on_the_node, "part", point.with_name(str(number)))
    VolumeFolders(tmp_path / "pods").remove("uid")
    assert not (tmp_path / "pods" / "uid").exists()
    assert (on_the_node / "part" / "precious").exists()
    VolumeFolders(tmp_path / "pods").remove("uid")


def test_nothing_is_removed_while_a_part_cannot_be_taken_away(tmp_path, volume, point, monkeypatch):
    on_the_node = tmp_path / "node"
    (on_the_node / "part").mkdir(parents=True)
    (on_the_node / "part" / "precious").touch()
    mounted_part(on_the_node, "part", point)

    def refused(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(sub_paths, "_remove_mount", refused)
    VolumeFolders(tmp_path / "pods").remove("uid")
    monkeypatch.undo()
    assert (on_the_node / "part" / "precious").exists()
    assert os.listdir(point) == ["precious"]


def test_without_root_the_part_is_the_path_that_was_found(volume, point):
    """In a process of its own: root cannot be had back."""
    (volume / "data").mkdir()
    (volume / "current").symlink_to("data")
    for folder in (volume, *volume.parents):
        # Only those that are closed: the machine's own folders stay as they are.
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(0o755)
    volume.parent.chmod(0o777)
    program = (
        "import os, sys; from pathlib import Path; from dray.kubelet.sub_paths import mounted_part; os.setuid(65534); "
        "print(mounted_part(Path(sys.argv[1]), 'current', Path(sys.argv[2])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, volume, point], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.returncode) == (str(volume / "data"), 0), done.stderr
    assert not point.exists()
