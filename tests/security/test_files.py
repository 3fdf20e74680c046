"""What lies on the disk of a running cluster, and who may read or write it."""

import os
import stat
from pathlib import Path

import pytest
import yaml


def mode(path: Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def everything(root: Path) -> list[Path]:
    found = [root]
    for folder, folders, files in os.walk(root):
        found += [Path(folder) / name for name in (*folders, *files)]
    return [path for path in found if path.exists() and not path.is_symlink()]


def test_the_servers_data_is_for_its_owner_only(site):
    data = site.folder / "data"
    assert mode(data) & 0o077 == 0
    private = [path for path in everything(data) if path.suffix in (".key", ".db") or path.name.startswith("dray.db")]
    assert {".key", ".db"} <= {path.suffix for path in private}
    assert [(path, oct(mode(path))) for path in private if mode(path) & 0o077] == []


def test_kubeconfigs_are_for_their_owner_only(site):
    assert mode(site.kubeconfig) == 0o600
    assert "client-key-data" in yaml.safe_load(site.kubeconfig.read_text())["users"][0]["user"]


def test_an_existing_kubeconfig_that_all_can_read_is_made_private(site, tmp_path):
    from click.testing import CliRunner

    from dray.cli.main import cli

    target = tmp_path / "kubeconfig"
    target.touch(mode=0o644)
    target.chmod(0o644)
    arguments = ["--data", str(site.folder / "data"), "--server", "https://127.0.0.1:1", "--user", "alice"]
    done = CliRunner().invoke(cli, ["kubeconfig", *arguments, "--output", str(target)])
    assert done.exit_code == 0, done.output
    assert mode(target) == 0o600


@pytest.mark.parametrize("part", ["data", "n", "cdi"])
def test_nothing_is_writable_for_others(site, part):
    loose = [
        (path, oct(mode(path)))
        for path in everything(site.folder / part)
        if mode(path) & 0o002 and not mode(path) & stat.S_ISVTX
    ]
    assert loose == []


def test_everything_of_the_agent_is_for_its_owner_only(site):
    """Folders, logs, sockets, the registry of drivers, and what containers are told."""
    root = site.folder / "n"
    found = everything(root)
    assert {"plugins", "plugins_registry", "pods", "logs", "pod-resources"} <= {path.name for path in found}
    sockets = [path for path in found if stat.S_ISSOCK(os.lstat(path).st_mode)]
    assert len(sockets) >= 3, "the registration socket, the driver's own, and that of pod resources"
    # Below a folder that nobody else may enter, single files may be readable: containers of other users see them by mounts.
    closed = [path for path in found if path.is_dir() and not mode(path) & 0o077]
    reachable = [path for path in found if not any(folder in path.parents for folder in closed)]
    assert [(path, oct(mode(path))) for path in reachable if mode(path) & 0o077] == []
    private = [
        path
        for path in found
        if path.suffix in (".log", ".sock", ".times") or path.name in ("boot", "logs", "prepared.json")
    ]
    assert [(path, oct(mode(path))) for path in private if mode(path) & 0o077] == []


def test_what_is_prepared_is_for_its_owner_only(site):
    noted = [*(site.folder / "n").glob("dra_manager_state"), *(site.folder / "n").glob("plugins/*/prepared.json")]
    assert len(noted) == 2
    assert [(path, oct(mode(path))) for path in noted if mode(path) & 0o077] == []


def test_cdi_files_are_written_by_their_owner_only(site):
    """Runtimes of other users may read them, as everywhere; nobody else may write."""
    files = list(site.cdi.glob("*"))
    assert files
    assert [(path, oct(mode(path))) for path in files if mode(path) & 0o022] == []
    assert mode(site.cdi) & 0o022 == 0
