"""Operations of a program for a device as values, on views of memory."""
