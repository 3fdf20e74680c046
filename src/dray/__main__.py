"""`python -m dray` is `dray`."""

from dray.cli.main import main

if __name__ == "__main__":
    main()
