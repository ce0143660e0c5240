// Recognises the utterances of utterances.json, sound files and recordings with the network of
// network.js, and draws what it says.
//
// ?utterance=KEY shows that utterance first, ?sound=URL a sound file. When one is shown, the text of
// the element #word is the word, and document.body.dataset.posteriors holds the log-posteriors as
// JSON, frame by frame.

import { fbank, RATE, wavRate, withoutMean } from "./fbank.js";
import { load, WHAT } from "./network.js";

const CLASSES = ["silence", "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
const element = (id) => document.getElementById(id);

function recognised(logPosteriors) {
  const sums = CLASSES.map((_, c) => logPosteriors.reduce((sum, frame) => sum + frame[c], 0));
  return CLASSES[sums.indexOf(Math.max(...sums.slice(1)), 1)];
}

// Draws a matrix, (columns of the picture, rows from the top), with shades from 0 to 1.
function draw(canvas, shades) {
  canvas.width = shades.length;
  canvas.height = shades[0].length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const [from, to] = isDark ? [[13, 17, 23], [121, 192, 255]] : [[255, 255, 255], [9, 58, 130]];
  shades.forEach((column, x) => column.forEach((shade, y) => {
    const place = 4 * (y * canvas.width + x);
    for (let c = 0; c < 3; c++) image.data[place + c] = from[c] + shade * (to[c] - from[c]);
    image.data[place + 3] = 255;
  }));
  context.putImageData(image, 0, 0);
}

async function show(compute, utterance) {
  const start = performance.now();
  const logPosteriors = await compute(utterance.features);
  const milliseconds = performance.now() - start;
  const values = utterance.features.flat();
  const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  draw(element("features"), utterance.features.map((frame) =>
    frame.map((value) => (value - low) / (high - low)).reverse()));
  draw(element("posteriors"), logPosteriors.map((frame) => frame.map(Math.exp)));
  const word = recognised(logPosteriors);
  element("word").className =
    utterance.word === undefined ? "own" : word === utterance.word ? "right" : "wrong";
  element("time").textContent =
    `${utterance.features.length} frames took ${milliseconds.toFixed(1)} ms here.`;
  document.body.dataset.posteriors = JSON.stringify(logPosteriors);
  element("word").textContent = word;
}

// Features of a sound file in any format that the browser reads, which also resamples it.
async function featuresOf(buffer, name) {
  const rate = wavRate(buffer);
  if (rate < RATE) throw new Error(`${name} has ${rate} samples a second; the network wants ${RATE} or more`);
  const context = new OfflineAudioContext(1, 1, RATE); // what it decodes has its rate
  const sound = await context.decodeAudioData(buffer).catch(() => {
    throw new Error(`${name} is no sound file that this browser can read`);
  });
  const samples = new Float32Array(sound.length);
  for (let channel = 0; channel < sound.numberOfChannels; channel++) {
    sound.getChannelData(channel).forEach((value, i) => { samples[i] += value / sound.numberOfChannels; });
  }
  return withoutMean(fbank(samples));
}

// Records until the returned function is called, which gives the recording.
async function record() {
  if (!navigator.mediaDevices) throw new Error("this page needs https or localhost for the microphone");
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const recorder = new MediaRecorder(stream), parts = [];
  recorder.ondataavailable = ({ data }) => parts.push(data);
  recorder.start();
  return () => new Promise((resolve) => {
    recorder.onstop = () => resolve(new Blob(parts).arrayBuffer());
    recorder.stop();
    stream.getTracks().forEach((track) => track.stop());
  });
}

function showError(error) {
  element("word").className = "wrong";
  element("word").textContent = `error: ${error.message ?? error}`;
  delete document.body.dataset.posteriors;
}

async function main() {
  element("what").textContent = WHAT;
  const { about, utterances } = await (await fetch("utterances.json")).json();
  const compute = await load(about);
  element("labels").innerHTML = CLASSES.join("<br>");
  const select = element("utterance");
  select.append(...utterances.map(({ key }) => new Option(key)));
  const wanted = new URLSearchParams(location.search).get("utterance") ?? utterances[0].key;
  select.value = wanted;
  if (select.selectedIndex < 0) throw new Error(`there is no utterance ${wanted}`);
  const showSound = async (buffer, name) =>
    show(compute, { features: await featuresOf(buffer, name) });
  const showChosen = () => show(compute, utterances[select.selectedIndex]);
  select.onchange = () => showChosen().catch(showError);
  const input = element("file"), button = element("record");
  input.onchange = async () => {
    const [file] = input.files;
    if (file) await showSound(await file.arrayBuffer(), file.name).catch(showError);
  };
  let finish; // while a recording goes on
  button.onclick = async () => {
    button.disabled = true;
    try {
      if (finish) {
        const end = finish;
        finish = undefined;
        await showSound(await end(), "the recording");
      } else finish = await record();
    } catch (error) {
      showError(error);
    }
    button.textContent = finish ? "Stop" : "Record";
    button.disabled = false;
  };
  for (const each of [select, input, button]) each.disabled = false;
  const sound = new URLSearchParams(location.search).get("sound");
  if (sound === null) return showChosen();
  const found = await fetch(sound);
  if (!found.ok) throw new Error(`there is no file ${sound}`);
  return showSound(await found.arrayBuffer(), sound);
}

main().catch(showError);
