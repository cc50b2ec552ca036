"""`python -m mtcli`, which is also how torchrun starts it."""

from mtcli.cli import main

if __name__ == "__main__":
    main()
