"""Damages model files by their structure, and reads them."""
