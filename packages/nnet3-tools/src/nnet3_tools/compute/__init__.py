"""Tools that run a model over features.

nnet3_compute.py, ...   a tool each
utterance_tool.py       what they have in common: options, models, tables
utterances.py           the loop over a table
shards.py               the same by several processes, for --jobs and --dask
profiles.py             --profile
"""
