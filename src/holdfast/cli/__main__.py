"""`python -m holdfast.cli`, for where the `holdfast` script is not at hand."""

from .main import main

main()
