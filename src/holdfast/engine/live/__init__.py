"""Live reads for many subscribers at once: trails as they grow, and the ends of runs."""
