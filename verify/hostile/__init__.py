"""The experiment hostile: hostile text, JSON, numbers and SQL beside working workers and readers."""
