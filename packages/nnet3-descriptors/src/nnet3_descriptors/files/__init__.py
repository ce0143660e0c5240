"""Opening, reading and replacing files; integers, reals and arrays in Kaldi's form."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_descriptors.errors import file_error as file_error
    from nnet3_descriptors.files import compressed as compressed
    from nnet3_descriptors.files.atomic_write import REPLACES as REPLACES
    from nnet3_descriptors.files.atomic_write import file_to_replace as file_to_replace
    from nnet3_descriptors.files.atomic_write import locked as locked
    from nnet3_descriptors.files.atomic_write import new_file as new_file
    from nnet3_descriptors.files.atomic_write import new_folder as new_folder
    from nnet3_descriptors.files.atomic_write import remove_folder as remove_folder
    from nnet3_descriptors.files.atomic_write import write_atomically as write_atomically
    from nnet3_descriptors.files.binary_and_text import BINARY_MARK as BINARY_MARK
    from nnet3_descriptors.files.binary_and_text import BinaryReader as BinaryReader
    from nnet3_descriptors.files.binary_and_text import TextReader as TextReader
    from nnet3_descriptors.files.compressed import CompressedMatrix as CompressedMatrix
    from nnet3_descriptors.files.compressed import Header as Header
    from nnet3_descriptors.files.entries import Entry as Entry
    from nnet3_descriptors.files.entries import key_fault as key_fault
    from nnet3_descriptors.files.entries import read_entries as read_entries
    from nnet3_descriptors.files.reader import Reader as Reader
    from nnet3_descriptors.files.source import FileMap as FileMap
    from nnet3_descriptors.files.source import PathOrFile as PathOrFile
    from nnet3_descriptors.files.source import leave_behind as leave_behind
    from nnet3_descriptors.files.source import mapped as mapped
    from nnet3_descriptors.files.source import maps_of as maps_of
    from nnet3_descriptors.files.source import open_file as open_file
    from nnet3_descriptors.files.source import open_reader as open_reader
    from nnet3_descriptors.files.source import read_file as read_file
    from nnet3_descriptors.files.source import read_matrix as read_matrix
    from nnet3_descriptors.files.source import read_vector as read_vector
    from nnet3_descriptors.files.source import stream_name as stream_name
    from nnet3_descriptors.files.sparse import SparseMatrix as SparseMatrix
    from nnet3_descriptors.files.writer import BinaryWriter as BinaryWriter
    from nnet3_descriptors.files.writer import TextWriter as TextWriter
    from nnet3_descriptors.files.writer import Writer as Writer
    from nnet3_descriptors.files.writer import new_writer as new_writer
    from nnet3_descriptors.text import parse_integer as parse_integer
    from nnet3_descriptors.text import parse_real as parse_real
else:
    __getattr__, __dir__ = on_first_use(__name__)
