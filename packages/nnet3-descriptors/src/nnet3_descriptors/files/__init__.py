"""Opening, reading and replacing files; integers, reals and arrays in Kaldi's form."""

from nnet3_descriptors.errors import file_error
from nnet3_descriptors.files import compressed
from nnet3_descriptors.files.arrays import read_matrix, read_vector
from nnet3_descriptors.files.atomic_write import (
    file_to_replace,
    locked,
    new_file,
    new_folder,
    remove_folder,
    write_atomically,
)
from nnet3_descriptors.files.binary_reader import BinaryReader
from nnet3_descriptors.files.compressed import CompressedMatrix, Header
from nnet3_descriptors.files.entries import Entry, key_fault, read_entries
from nnet3_descriptors.files.opening import mapped, open_file, read_file
from nnet3_descriptors.files.reader import Reader
from nnet3_descriptors.files.source import (
    BINARY_MARK,
    PathOrFile,
    leave_behind,
    open_reader,
    stream_name,
)
from nnet3_descriptors.files.sparse import SparseMatrix
from nnet3_descriptors.files.text_reader import TextReader
from nnet3_descriptors.files.writer import BinaryWriter, TextWriter, Writer, new_writer
from nnet3_descriptors.text import parse_integer, parse_real

__all__ = [
    "BINARY_MARK",
    "BinaryReader",
    "BinaryWriter",
    "CompressedMatrix",
    "Entry",
    "Header",
    "PathOrFile",
    "Reader",
    "SparseMatrix",
    "TextReader",
    "TextWriter",
    "Writer",
    "compressed",
    "file_error",
    "file_to_replace",
    "key_fault",
    "leave_behind",
    "locked",
    "mapped",
    "new_file",
    "new_folder",
    "new_writer",
    "open_file",
    "open_reader",
    "parse_integer",
    "parse_real",
    "read_entries",
    "read_file",
    "read_matrix",
    "read_vector",
    "remove_folder",
    "stream_name",
    "write_atomically",
]
