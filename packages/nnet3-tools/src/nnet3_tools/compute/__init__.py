"""Tools that run a model over features.

nnet3_compute.py, ...   a tool each
compute_options.py      the options of the first ones, and whether they fit a network
ivector_source.py       i-vectors from tables
utterance_tool.py       what they have in common: options, models, tables
utterances.py           the loop over a table
shards.py               the same by several processes, for --jobs and --dask
profiles.py             --profile
"""
