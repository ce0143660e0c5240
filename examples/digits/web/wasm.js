// The network as digits.wasm: the C of nnet3-to-c.

import { chunks } from "./chunks.js";

export const WHAT = "C source, compiled to WebAssembly";

// A function from features to log-posteriors.
export async function load(about) {
  const bytes = await (await fetch("digits.wasm")).arrayBuffer();
  const { memory, input, output, compute } = (await WebAssembly.instantiate(bytes)).instance.exports;
  const { frames, dim, classes } = about;
  return (features) => {
    const { values, count, size } = chunks(features, about);
    const logPosteriors = [];
    for (let chunk = 0; chunk < count; chunk++) {
      const given = values.subarray(chunk * size * dim, (chunk + 1) * size * dim);
      new Float32Array(memory.buffer, input(), given.length).set(given);
      compute();
      for (let t = 0; t < frames; t++) {
        logPosteriors.push(Array.from(new Float32Array(memory.buffer, output() + 4 * t * classes, classes)));
      }
    }
    return logPosteriors.slice(0, features.length);
  };
}
