"""The outbox: messages that user code sends, and the relay that delivers them to their sinks."""
