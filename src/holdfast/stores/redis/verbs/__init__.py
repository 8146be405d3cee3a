"""The verbs of the contract, as mixins of the store: each is a function over a snapshot."""
