// The page: its state, one frame of it, and the events that change it.
const byId = (id) => document.getElementById(id);

function startPage(content) {
  const model = makeModel(content), drawings = unpackDrawings(content), samples = content.samples.map(unpackSample);
  content.half = content.interval && halfWidths(content.interval, content.channels.length);
  const points = unpack(content.points), trained = trainedInputs(model, content.groups);
  const state = { values: middle(model), sample: samples.length ? 0 : null, channel: 0, steady: false, probe: null };
  const pictures = makePictures(content, drawings, samples.length > 0, () => change({}));
  let isWaiting = false, timer = 0;

  function change(changes) {
    Object.assign(state, changes);
    if (state.sample !== null) state.values = [...samples[state.sample].values];
    if (!isWaiting) requestAnimationFrame(frame);
    isWaiting = true;
    clearTimeout(timer); // browsers limit how often an address may change
    timer = setTimeout(() => history.replaceState(null, "", toAddress(state)), 250);
  }

  function frame() {
    isWaiting = false;
    const inputs = state.sample === null ? model.inputsOf(state.values) : samples[state.sample].inputs;
    const coefficients = model.coefficientsOf(inputs), field = model.fieldOf(coefficients, state.channel);
    const truth = state.sample === null ? undefined : samples[state.sample].truths[state.channel];
    const shown = { state, inputs, coefficients, field, truth };
    showFields(pictures, shown, content);
    showControls(sliders, shown, content, model, trained);
    if (state.probe) byId("readout").textContent = readout(shown, model, drawings.output, points, content);
  }

  function read() {
    const coordinates = drawings.output.kind === "curve" ? 1 : 2;
    const sizes = { sliders: model.sliders, samples: samples.length, channels: content.channels.length, coordinates };
    const { values, sample, ...others } = fromAddress(location.hash, sizes);
    if (values) state.values = values;
    change({ ...others, ...(values || sample !== null ? { sample } : {}) });
  }

  const sliders = makeGroups(byId("groups"), content.groups, (number, value) =>
    change({ values: state.values.map((old, k) => (k === number ? value : old)), sample: null }));
  makeChoices(content, samples, trained, change);
  for (const picture of pictures.output) watch(picture, drawings.output, () => state.probe, (probe) => change({ probe }));
  for (const note of content.notes) byId("notes").append(element("p", "soft", note));
  window.addEventListener("hashchange", read);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => change({}));
  read();
  return { state, change, frame, model };
}

// Lists and switches next to the sliders; those without a choice stay hidden.
function makeChoices(content, samples, trained, change) {
  fillList(byId("sample"), ["none: the sliders", ...samples.map(({ name }) => name)], (k) => change({ sample: k ? k - 1 : null }));
  fillList(byId("channel"), content.channels, (channel) => change({ channel }));
  byId("sample-choice").hidden = samples.length === 0;
  byId("channel-choice").hidden = content.channels.length === 1;
  byId("seen-choice").hidden = !trained;
  byId("seen").max = trained ? trained.rows.length - 1 : 0;
  byId("seen").addEventListener("input", () => change({ values: [...trained.rows[Number(byId("seen").value)]], sample: null }));
  byId("steady").addEventListener("change", () => change({ steady: byId("steady").checked }));
}

// Half width of the interval at every point, for each channel.
function halfWidths({ half }, channels) {
  const { data } = unpack(half), points = data.length / channels;
  return Array.from({ length: channels }, (_, channel) => data.subarray(channel * points, (channel + 1) * points));
}

const unpackSample = (sample) => ({
  ...sample,
  inputs: unpack(sample.inputs).data,
  truths: Object.fromEntries(Object.entries(sample.truths).map(([channel, truth]) => [channel, unpack(truth).data])),
});

function unpackDrawings(content) {
  const unpacked = (drawing) => {
    const places = unpack(drawing.places);
    return { kind: drawing.kind, axes: drawing.axes, places, triangles: unpack(drawing.triangles), box: boxOf(places) };
  };
  const output = unpacked(content.drawing);
  const ofGroup = ({ drawing }) => (drawing === "same" ? output : drawing && unpacked(drawing));
  return { output, inputs: content.groups.map(ofGroup) };
}

// The training input nearest to their mean.
function middle(model) {
  const rows = Array.from({ length: model.rows }, (_, row) => model.seenRow(row));
  const mean = Array.from({ length: model.sliders }, (_, k) => rows.reduce((sum, row) => sum + row[k], 0) / rows.length);
  const size = (row) => row.reduce((sum, value, k) => sum + ((value - mean[k]) / (Math.abs(mean[k]) + 1)) ** 2, 0);
  return [...rows.reduce((best, row) => (size(row) < size(best) ? row : best))];
}

// Training inputs in the order of the first shape; null if inputs are numbers, which sliders reach exactly.
function trainedInputs(model, groups) {
  const ofFunction = groups.findIndex(({ drawing }) => drawing);
  if (ofFunction < 0) return null;
  const first = groups.slice(0, ofFunction).reduce((sum, { sliders }) => sum + sliders.length, 0);
  const rows = Array.from({ length: model.rows }, (_, row) => model.seenRow(row)).sort((a, b) => a[first] - b[first]);
  const nearest = (values) => rows.findIndex((row) => row[first] >= values[first]);
  return { rows, placeOf: (values) => (nearest(values) < 0 ? rows.length - 1 : nearest(values)) };
}

function makePictures(content, drawings, hasSamples, onResize) {
  const colours = { field: palette(content.colours.field), error: palette(content.colours.error) };
  const make = (figure, drawing, name = "field") => makePicture(figure, drawing, colours[name], onResize);
  const prediction = make(byId("prediction"), drawings.output);
  const truth = hasSamples && drawings.output.kind !== "curve" ? make(byId("truth"), drawings.output) : null;
  const error = hasSamples ? make(byId("error"), drawings.output, "error") : null;
  const interval = content.half && drawings.output.kind !== "curve" ? make(byId("interval"), drawings.output, "error") : null;
  if (interval) interval.figure.firstChild.textContent = `Half width of the ${content.interval.level} interval`;
  const output = [prediction, truth, error, interval].filter(Boolean);
  for (const { figure } of output) figure.hidden = false;
  prediction.figure.append(byId("readout"));
  const inputs = content.groups.map(({ name }, k) => {
    if (!drawings.inputs[k]) return null;
    const figure = byId("pictures").appendChild(element("figure"));
    figure.append(element("figcaption", "", name === "input" ? "Input" : `Input: ${name}`));
    return make(figure, drawings.inputs[k]);
  });
  return { prediction, truth, error, interval, inputs, output };
}

function showFields({ prediction, truth, error, interval, inputs }, shown, content) {
  const { field, state: { channel, steady, sample, probe } } = shown;
  const predicted = { name: "predicted", values: field }, curves = [predicted];
  if (shown.truth && !truth) curves.push({ name: "true", values: shown.truth });
  const half = content.half?.[channel], isCurve = half && !interval;
  const edges = isCurve ? [-1, 1].map((sign) => field.map((value, p) => value + sign * half[p])) : [];
  const own = rangeOf(...curves.map(({ values }) => values), ...edges), [low, high] = content.ranges[channel];
  const range = steady && own.low <= own.high ? { low, high } : own;
  const named = `Predicted ${content.channels[channel] === "output" ? "field" : content.channels[channel]}`;
  prediction.figure.querySelector("figcaption").textContent = named + (isCurve ? `, with its ${content.interval.level} interval` : "");
  prediction.draw(curves, range, { title: named, empty: "no value here", probe, band: isCurve ? half : null });
  interval?.draw([{ values: half }], { ...rangeOf(half), low: 0 }, { title: "Half width of the interval", empty: "", probe });
  if (shown.truth) {
    const apart = shown.truth.map((value, p) => Math.abs(field[p] - value));
    truth?.draw([{ values: shown.truth }], range, { title: "True field", empty: "no value here", probe });
    error.draw([{ values: apart }], { ...rangeOf(apart), low: 0 }, { title: "Absolute error", empty: "no value here", probe });
  } else {
    const empty = sample === null ? "choose a test sample to compare" : "not stored for this output";
    const nothing = field.map(() => NaN);
    truth?.draw([{ values: nothing }], rangeOf(nothing), { title: "True field", empty });
    error?.draw([{ values: nothing }], rangeOf(nothing), { title: "Absolute error", empty });
  }
  content.groups.forEach(({ name, first, last }, k) => {
    const values = shown.inputs.slice(first, last);
    inputs[k]?.draw([{ values }], rangeOf(values), { title: `Input ${name}`, empty: "no value here" });
  });
}

function showControls(sliders, { state, field }, content, model, trained) {
  sliders.forEach((slider, k) => slider.show(state.values[k]));
  byId("sample").value = state.sample === null ? 0 : state.sample + 1;
  byId("channel").value = state.channel;
  if (trained) byId("seen").value = trained.placeOf(state.values);
  byId("steady").checked = state.steady;
  const all = content.groups.flatMap((group) => group.sliders);
  const names = all.filter((slider, k) => isOutside(slider, state.values[k])).map(({ name }) => name);
  const isInside = names.length === 0 && model.outlierScore(model.inputsOf(state.values)) <= 1;
  let text = "Inside the training range.";
  if (!isInside) text = "Inside every range, but unlike all training inputs: the prediction is not reliable.";
  if (names.length) text = `Outside the training range (${names.join(", ")}): the prediction is not reliable.`;
  if (!rangeOf(field).isWhole) text = `No value here: the operator cannot take this input. ${names.length ? text : ""}`;
  if (byId("status").textContent !== text) byId("status").textContent = text;
  byId("status").classList.toggle("warning", !text.startsWith("Inside the"));
}

// The value under the pointer, computed by the operator there, not interpolated between the points.
function readout({ state, field, truth, coefficients }, model, drawing, points, content) {
  if (!state.probe) return null;
  const { channel, probe } = state, name = content.channels.length > 1 ? ` ${content.channels[channel]}` : "";
  const where = probe.map((x, k) => `${drawing.axes[k]} = ${format(x)}`).join(", ");
  const near = between(drawing, probe);
  if (!near) return `${where}: outside of the domain`;
  const isDots = drawing.kind === "dots";
  const value = isDots ? field[near[0][0]] : model.valueAt(coefficients, probe, channel);
  const place = isDots ? `point (${[...points.data.subarray(near[0][0] * points.shape[1], (near[0][0] + 1) * points.shape[1])].map((x) => format(x)).join(", ")})` : where;
  let text = `${place}: predicted${name} ${format(value, 6)}`;
  if (content.half) text += ` ± ${format(near.reduce((sum, [p, weight]) => sum + weight * content.half[channel][p], 0), 2)} (${content.interval.level})`;
  if (truth) {
    const true_ = near.reduce((sum, [p, weight]) => sum + weight * truth[p], 0);
    text += `, true ${format(true_, 6)}, error ${format(Math.abs(value - true_), 2)}`;
  }
  return text;
}

// The points around a place and their weights; null outside of the domain.
function between(drawing, probe) {
  const { kind, places, box } = drawing;
  if (kind !== "curve") {
    const raster = rasterOf(drawing);
    const i = Math.floor(((probe[0] - box.low[0]) / (box.high[0] - box.low[0])) * raster.width * (1 - 1e-9));
    const j = Math.floor(((box.high[1] - probe[1]) / (box.high[1] - box.low[1])) * raster.height * (1 - 1e-9));
    const at = 4 * (j * raster.width + i);
    if (i < 0 || j < 0 || i >= raster.width || j >= raster.height || raster.corners[at] < 0) return null;
    return [0, 1, 2, 3].map((k) => [raster.corners[at + k], raster.weights[at + k]]);
  }
  if (!(probe[0] >= box.low[0] && probe[0] <= box.high[0])) return null;
  const x = places.data;
  let left = 0, right = 0;
  x.forEach((value, p) => {
    if (value <= probe[0] && !(x[left] <= probe[0] && x[left] > value)) left = p;
    if (value >= probe[0] && !(x[right] >= probe[0] && x[right] < value)) right = p;
  });
  const share = x[right] > x[left] ? (probe[0] - x[left]) / (x[right] - x[left]) : 0;
  return [[left, 1 - share], [right, share]];
}

// Pointer and arrow keys move the place whose value is shown.
function watch(picture, { box }, current, onMove) {
  const move = (event) => {
    const place = picture.placeOf(event);
    if (place) onMove(place);
  };
  picture.canvas.addEventListener("pointermove", move);
  picture.canvas.addEventListener("pointerdown", move);
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] };
  picture.canvas.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const size = box.high.map((high, k) => high - box.low[k]);
    const count = current()?.length ?? (Number.isFinite(size[1]) ? 2 : 1);
    const from = current() ?? box.low.slice(0, count).map((low, k) => low + size[k] / 2);
    onMove(from.map((x, k) => Math.min(box.high[k], Math.max(box.low[k], x + (step[k] * size[k]) / 50))));
  });
}

const explorer = typeof document === "undefined" ? null : startPage(JSON.parse(document.getElementById("content").textContent));
