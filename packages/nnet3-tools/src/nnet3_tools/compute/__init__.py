"""Tools that run a model over features.

nnet3_compute.py, ...   one tool each
compute_options.py      the options for outputs of frames, and checks against a network
ivector_source.py       i-vectors from tables
utterance_tool.py       the common parts: options, models, tables
utterances.py           the loop over a table
shards.py               the same by several processes, for --jobs and --dask
profiles.py             --profile
"""
