"""`python -m dray`."""

from dray.cli.main import main

main()
