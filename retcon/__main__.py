"""`python -m retcon`, the same as the `retcon` command."""

from retcon.cli import main

if __name__ == "__main__":
    main()
