"""How fast the pages of the dashboard are rendered."""
