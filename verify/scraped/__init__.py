"""An experiment with a real Prometheus: the metrics that it has scraped are what really happened."""
