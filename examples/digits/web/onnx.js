// The network as digits.onnx, in ONNX Runtime Web.

import * as ort from "./ort.wasm.min.mjs";
import { chunks } from "./chunks.js";

export const WHAT = "an ONNX model in ONNX Runtime Web";

// A function from features to log-posteriors. The chunks of an utterance are sequences of the model.
export async function load(about) {
  ort.env.wasm.numThreads = 1; // several need headers that a plain file server does not send
  const session = await ort.InferenceSession.create("digits.onnx", { executionProviders: ["wasm"] });
  return async (features) => {
    const { values, count, size } = chunks(features, about);
    const input = new ort.Tensor("float32", values, [count, size, about.dim]);
    const { output } = await session.run({ input });
    const classes = output.dims[output.dims.length - 1];
    return features.map((_, t) => Array.from(output.data.slice(t * classes, (t + 1) * classes)));
  };
}
