"""The stories of `dray demo`: every placement and every number of the KEPs, through the API."""

import subprocess
import sys


def test_every_story_goes_as_the_keps_say():
    done = subprocess.run(
        [sys.executable, "-m", "dray", "demo"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 of 12 stories went as expected" in done.stdout
    assert done.stderr == ""


def test_a_story_that_does_not_exist_is_wrong_usage():
    done = subprocess.run(
        [sys.executable, "-m", "dray", "demo", "--only", "99"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "there are stories 1 to" in done.stderr
