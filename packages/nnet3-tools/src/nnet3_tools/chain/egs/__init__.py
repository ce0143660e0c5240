"""The tools that copy, merge, shuffle and choose chain examples."""
