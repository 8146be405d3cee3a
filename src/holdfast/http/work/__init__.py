"""The shared parts behind the worker protocol: tokens, long polls, commits of many requests, and a keeper."""
