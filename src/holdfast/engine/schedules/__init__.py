"""Schedules: firing by keepers, and the check-up of schedules that cannot fire."""
