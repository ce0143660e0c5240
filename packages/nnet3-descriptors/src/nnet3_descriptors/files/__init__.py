"""Reading and writing files: opened, read and replaced; integers, reals and arrays as Kaldi's."""

from nnet3_descriptors.errors import file_error
from nnet3_descriptors.files.atomic_write import write_atomically
from nnet3_descriptors.files.binary_reader import BinaryReader
from nnet3_descriptors.files.opening import mapped, open_file, read_file
from nnet3_descriptors.files.reader import Reader
from nnet3_descriptors.files.source import PathOrFile
from nnet3_descriptors.files.text_reader import TextReader

__all__ = [
    "BinaryReader",
    "PathOrFile",
    "Reader",
    "TextReader",
    "file_error",
    "mapped",
    "open_file",
    "read_file",
    "write_atomically",
]
