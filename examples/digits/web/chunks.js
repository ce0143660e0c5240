// Features as chunks of a fixed number of frames with their context: values of (count, size, dim).
// Frames at the edges are repeated, as nnet3-compute does.
export function chunks(features, { left, right, frames, dim }) {
  const count = Math.ceil(features.length / frames);
  const size = left + frames + right;
  const values = new Float32Array(count * size * dim);
  for (let chunk = 0; chunk < count; chunk++) {
    for (let row = 0; row < size; row++) {
      const time = chunk * frames - left + row;
      const frame = features[Math.min(Math.max(time, 0), features.length - 1)];
      values.set(frame, (chunk * size + row) * dim);
    }
  }
  return { values, count, size };
}
