"""The verbs of the store: encode the arguments, call one function of the database, decode the answer."""
