"""One verb a file: the imperative shell that walks the chain of values."""
