"""`python -m holdfast.cli`: the same as the `holdfast` script."""

from .main import main

main()
