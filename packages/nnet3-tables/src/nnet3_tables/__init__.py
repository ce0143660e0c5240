"""Kaldi's tables: archives and script files, read and written with clear errors.

Tables are read and written by Python's own streams. So no line of data can run a command, other
threads compute while one waits for a command, and Ctrl-C ends the wait. A file gets its name when
it is whole. Every failure becomes a TableError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_tables.commands import is_command as is_command
    from nnet3_tables.entries import FloatArray as FloatArray
    from nnet3_tables.entries import Value as Value
    from nnet3_tables.entries import files_of as files_of
    from nnet3_tables.errors import TableError as TableError
    from nnet3_tables.errors import TableWarning as TableWarning
    from nnet3_tables.lookup import MatrixLookup as MatrixLookup
    from nnet3_tables.lookup import ObjectLookup as ObjectLookup
    from nnet3_tables.lookup import VectorLookup as VectorLookup
    from nnet3_tables.reading import read_files as read_files
    from nnet3_tables.reading import read_matrices as read_matrices
    from nnet3_tables.reading import read_matrix as read_matrix
    from nnet3_tables.reading import read_objects as read_objects
    from nnet3_tables.reading import read_table as read_table
    from nnet3_tables.reading import read_tokens as read_tokens
    from nnet3_tables.reading import read_vector as read_vector
    from nnet3_tables.sources import archive_size as archive_size
    from nnet3_tables.sources import lines as lines
    from nnet3_tables.sources import opened as opened
    from nnet3_tables.sources import opened_to_write as opened_to_write
    from nnet3_tables.specifier import Specifier as Specifier
    from nnet3_tables.writing import MatrixWriter as MatrixWriter
    from nnet3_tables.writing import ObjectWriter as ObjectWriter
    from nnet3_tables.writing import TableWriter as TableWriter
    from nnet3_tables.writing import VectorWriter as VectorWriter
    from nnet3_tables.writing import write_matrix as write_matrix
    from nnet3_tables.writing import write_table as write_table
    from nnet3_tables.writing import write_vector as write_vector
else:
    __getattr__, __dir__ = on_first_use(__name__)
