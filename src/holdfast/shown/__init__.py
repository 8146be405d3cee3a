"""Records as people and machines read them: JSON data, sentences, relative times.

The command line and other front ends share this package. It prints nothing and knows no terminal: a front end
adds colours, columns and line breaks.
"""
