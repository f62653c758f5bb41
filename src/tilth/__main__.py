"""`python -m tilth`, for when the command is not on the path."""

from tilth.cli import main

main()
