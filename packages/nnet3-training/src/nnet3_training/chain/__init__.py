"""'Chain' models: trained by lattice-free MMI (Povey et al., Interspeech 2016).

fst.py, fst_files.py, fst_operations.py                   FSTs as arrays, and OpenFst's files
supervision.py, supervision_files.py, example_files.py    what is trained on
denominator.py, numerator.py, objective.py                what is maximised
training.py                                               as the objective of a Trainer
"""
