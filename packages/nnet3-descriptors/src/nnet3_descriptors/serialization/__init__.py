"""The container of the three serialized values: Nnet, ComputationRequest and NnetComputation.

A container is a safetensors file. Arrays are its tensors; everything else is JSON, the one value
of its metadata, under the key "nnet3":

    {"format": "nnet3.nnet", "version": 1, "content": {...}}

Readers accept older versions: `Serialized.UPGRADES` of a class turns their content into that of the
newest version. Readers skip a key "extras" beside these, and tensors whose names begin with
"extras.".


- An object stands for an instance of a class: its keys are the names of the fields. Where several
  classes are possible, the key "type" gives the name of the class. (A class whose own attribute
  IS_ABSTRACT is true only serves others as a base.)
- A list stands for a tuple; a descriptor is its text.
- {"$tensor": NAME} stands for the array that is stored as the tensor NAME, which is the path to
  it: "components.3.linear_params".
- Infinite and undefined numbers, which JSON lacks, are the strings "inf", "-inf" and "nan".

Equal values give equal bytes, in every process. (This is why there is one metadata key: safetensors
keeps several in an order that differs from process to process.) Reading checks everything: a key,
tensor or type that is unknown, missing or of another kind is refused.
"""

from nnet3_descriptors.serialization.container import METADATA_KEY as METADATA_KEY
from nnet3_descriptors.serialization.container import Upgrade as Upgrade
from nnet3_descriptors.serialization.container import from_container as from_container
from nnet3_descriptors.serialization.container import to_container as to_container
from nnet3_descriptors.serialization.converter import from_json as from_json
from nnet3_descriptors.serialization.converter import to_json as to_json
