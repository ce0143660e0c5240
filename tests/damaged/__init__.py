"""Model files that are damaged with knowledge of their structure, and the reading of them."""
