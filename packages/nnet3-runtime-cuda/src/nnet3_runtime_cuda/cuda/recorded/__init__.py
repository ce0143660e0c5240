"""What a tape for a device records: operations as values, and the views of memory they work on."""
