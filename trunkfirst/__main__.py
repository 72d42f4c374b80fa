"""`python -m trunkfirst` is `trunkfirst`."""

from .cli import main

if __name__ == "__main__":
    main()
