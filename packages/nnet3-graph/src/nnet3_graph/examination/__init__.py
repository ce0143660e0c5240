"""The state of every row that the search for a graph meets, found in two ways.

`examined` derives it from the sets of rows of the builder. `breadth_first` goes hop by hop from the
outputs, as Kaldi's documents describe it, and shares no code with the sets.
"""

from nnet3_graph.examination.breadth_first import BreadthFirstExamination, Hop
from nnet3_graph.examination.examined import Examined, examine
from nnet3_graph.examination.states import ComputableInfo

__all__ = ["BreadthFirstExamination", "ComputableInfo", "Examined", "Hop", "examine"]
