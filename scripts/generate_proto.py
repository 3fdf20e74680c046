"""Makes the Python code of every `.proto` file below src/dray/proto. Needs the `grpcio-tools` of the dev dependencies."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src"


def main() -> int:
    protos = sorted(str(path.relative_to(SOURCES)) for path in (SOURCES / "dray" / "proto").glob("*.proto"))
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        "-I.",
        "--python_out=.",
        "--pyi_out=.",
        "--grpc_python_out=.",
        *protos,
    ]
    return subprocess.run(command, cwd=SOURCES, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
