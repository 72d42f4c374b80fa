"""`python -m trunkfirst` is `trunkfirst`."""

from .cli.commands import main

if __name__ == "__main__":
    main()
