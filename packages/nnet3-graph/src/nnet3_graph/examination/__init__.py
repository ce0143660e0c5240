"""The state of every row that the search for a graph meets, found in two ways.

`examined` reads it off the sets of rows that the builder works with. `breadth_first` follows one
hop after the other from the outputs, as Kaldi's documents tell it, and shares no code with the
sets.
"""

from nnet3_graph.examination.breadth_first import BreadthFirstExamination, Hop
from nnet3_graph.examination.examined import Examined, examine
from nnet3_graph.examination.states import ComputableInfo

__all__ = ["BreadthFirstExamination", "ComputableInfo", "Examined", "Hop", "examine"]
