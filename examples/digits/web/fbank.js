// Kaldi's log-mel energies ("fbank") of 16 kHz, as fbank.conf of the digits wants them.

export const RATE = 16000;

const LENGTH = 400, SHIFT = 160, SIZE = 512; // samples: 25 ms, 10 ms, and the next power of two
const BANDS = 23, LOWEST = 20, PREEMPHASIS = 0.97;
const DITHER = 20; // about the noise in the recordings of the training, in units of 16 bits
const EPSILON = 2 ** -23;

const WINDOW = Float64Array.from({ length: LENGTH }, (_, i) =>
  (0.5 - 0.5 * Math.cos((2 * Math.PI * i) / (LENGTH - 1))) ** 0.85);

const mel = (hertz) => 1127 * Math.log(1 + hertz / 700);

// For each band: the weights of the frequencies k * RATE / SIZE, a triangle on the mel scale.
const FILTERS = Array.from({ length: BANDS }, (_, band) => {
  const low = mel(LOWEST), step = (mel(RATE / 2) - low) / (BANDS + 1);
  const left = low + band * step, centre = left + step, right = centre + step;
  return Float64Array.from({ length: SIZE / 2 }, (_, k) => {
    const at = mel((k * RATE) / SIZE);
    return Math.max(0, Math.min((at - left) / step, (right - at) / step));
  });
});

// Numbers of a normal distribution, the same ones each time.
function normalNumbers() {
  let state = 1;
  const uniform = () => { state = (Math.imul(state, 1664525) + 1013904223) >>> 0; return (state + 1) / 2 ** 32; };
  return () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
}

// The Fourier transform of SIZE complex numbers, in place.
function transform(real, imaginary) {
  for (let i = 1, j = 0; i < SIZE; i++) { // the order of reversed bits
    let bit = SIZE >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) {
      [real[i], real[j]] = [real[j], real[i]];
      [imaginary[i], imaginary[j]] = [imaginary[j], imaginary[i]];
    }
  }
  for (let half = 1; half < SIZE; half *= 2) {
    for (let k = 0; k < half; k++) {
      const c = Math.cos((Math.PI * k) / half), s = -Math.sin((Math.PI * k) / half);
      for (let a = k; a < SIZE; a += 2 * half) {
        const b = a + half;
        const x = c * real[b] - s * imaginary[b], y = c * imaginary[b] + s * real[b];
        [real[b], imaginary[b]] = [real[a] - x, imaginary[a] - y];
        real[a] += x;
        imaginary[a] += y;
      }
    }
  }
}

// Samples between -1 and 1, at 16 kHz, to features: an array of BANDS numbers for each frame.
export function fbank(samples, dither = DITHER) {
  const count = Math.floor((samples.length - LENGTH) / SHIFT) + 1;
  if (count < 1) throw new Error(`${samples.length} samples are too few: one frame has ${LENGTH}`);
  const noise = normalNumbers();
  return Array.from({ length: count }, (_, frame) => {
    const real = new Float64Array(SIZE), imaginary = new Float64Array(SIZE);
    let sum = 0;
    for (let i = 0; i < LENGTH; i++) {
      real[i] = 32768 * samples[frame * SHIFT + i] + (dither ? dither * noise() : 0);
      sum += real[i];
    }
    for (let i = 0; i < LENGTH; i++) real[i] -= sum / LENGTH;
    for (let i = LENGTH - 1; i >= 0; i--) real[i] -= PREEMPHASIS * real[Math.max(i - 1, 0)];
    for (let i = 0; i < LENGTH; i++) real[i] *= WINDOW[i];
    transform(real, imaginary);
    return FILTERS.map((weights) => {
      let energy = 0;
      for (let k = 0; k < SIZE / 2; k++) energy += weights[k] * (real[k] ** 2 + imaginary[k] ** 2);
      return Math.log(Math.max(energy, EPSILON));
    });
  });
}

// Features less their mean over the utterance.
export function withoutMean(features) {
  const mean = features[0].map((_, band) =>
    features.reduce((sum, frame) => sum + frame[band], 0) / features.length);
  return features.map((frame) => frame.map((value, band) => value - mean[band]));
}

// The sample rate in the header of a WAV file; undefined for other files.
export function wavRate(buffer) {
  const view = new DataView(buffer);
  const text = (at) => String.fromCharCode(...new Uint8Array(buffer, at, 4));
  if (buffer.byteLength < 28 || text(0) !== "RIFF" || text(8) !== "WAVE") return undefined;
  for (let at = 12; at + 16 <= buffer.byteLength;) {
    const size = view.getUint32(at + 4, true);
    if (text(at) === "fmt ") return view.getUint32(at + 12, true);
    at += 8 + size + (size % 2);
  }
  return undefined;
}
