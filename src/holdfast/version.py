"""The version of the library, for every layer."""

VERSION = "0.1.0"
