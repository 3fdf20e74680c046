"""What a driver leaves when it is killed in the middle of a write is gone once the claim is given back."""

import os

import pytest

from dray.api.cdi import ContainerEdits
from dray.driver.claim_files import CdiFiles

EDITS = [("gpu-0", ContainerEdits(env=("A=B",)))]


def killed(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_unfinished_cdi_files(tmp_path, monkeypatch, step):
    files = CdiFiles(tmp_path, "gpu.example.com")
    with monkeypatch.context() as patched:
        patched.setattr(os, step, killed)
        # kill -9 runs no clean-up.
        patched.setattr("pathlib.Path.unlink", lambda self, missing_ok=False: None)
        with pytest.raises(KeyboardInterrupt):
            files.write("uid-1", EDITS)
    assert len(list(tmp_path.iterdir())) == 1
    files.write("uid-2", EDITS)
    files.remove("uid-1")
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.example.com-uid-2.json"]
