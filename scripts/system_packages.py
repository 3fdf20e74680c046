"""Installs the system packages that tests want, through apt when this runs as root on Debian; names them otherwise."""

import os
import shutil
import subprocess
import sys

# What a test needs, and the Debian package that has it.
WANTED = {"busybox": "busybox-static", "chromium": "chromium", "ip": "iproute2"}


def main() -> int:
    missing = {program: package for program, package in WANTED.items() if shutil.which(program) is None}
    if not missing:
        return 0
    packages = sorted(set(missing.values()))
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"missing programs: {', '.join(missing)}; install {', '.join(packages)} for the tests that need them")
        return 0
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            print(f"{' '.join(command)} failed:\n{done.stderr.strip()}", file=sys.stderr)
            return 0
    print(f"installed {', '.join(packages)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
