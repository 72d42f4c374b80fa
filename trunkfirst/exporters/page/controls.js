// Sliders and lists. Names come from data: they become text, never HTML.
const STEPS = 1000;
const SHAPES = "This input is a function: the mean of the training inputs plus a multiple of each of their main shapes of variation, the largest first.";

// Positions 0, ..., STEPS of a slider as numbers, and back.
function scaleOf({ start, stop, is_logarithmic: isLogarithmic }) {
  return isLogarithmic
    ? { value: (at) => start * (stop / start) ** (at / STEPS), at: (v) => (STEPS * Math.log(v / start)) / Math.log(stop / start) }
    : { value: (at) => start + ((stop - start) * at) / STEPS, at: (v) => (STEPS * (v - start)) / (stop - start) };
}

function makeSlider(slider, number, onChange) {
  const scale = scaleOf(slider), row = element("div", "slider"), id = `slider-${number}`;
  const label = Object.assign(element("label", "", slider.name), { htmlFor: id });
  const exact = Object.assign(element("input"), { type: "number", step: "any" });
  exact.setAttribute("aria-label", `${slider.name}, exact value`);
  const range = Object.assign(element("input"), { type: "range", id, min: 0, max: STEPS, step: 1 });
  const band = element("div", "band"), mark = element("div", "known");
  const words = Object.assign(element("p", "soft"), { id: `${id}-words` });
  const trained = `training range: ${format(slider.low)} to ${format(slider.high)}`;
  range.setAttribute("aria-describedby", words.id);
  mark.style.left = `${scale.at(slider.low) / (STEPS / 100)}%`;
  mark.style.right = `${100 - scale.at(slider.high) / (STEPS / 100)}%`;
  mark.title = trained;
  band.append(mark);
  row.append(label, exact, range, band, words);
  // Values have five digits.
  range.addEventListener("input", () => onChange(number, Number(scale.value(Number(range.value)).toPrecision(5))));
  exact.addEventListener("change", () => onChange(number, exact.value === "" ? NaN : Number(exact.value)));

  function show(value) {
    const outside = isOutside(slider, value);
    const at = Math.round(scale.at(value));
    range.value = Number.isFinite(at) ? at : value > slider.low ? STEPS : 0;
    range.setAttribute("aria-valuetext", format(value) + (outside ? ", outside of the training range" : ""));
    if (document.activeElement !== exact || Number(exact.value) !== value) exact.value = Number(value.toPrecision(6));
    words.textContent = outside ? `outside the training range (${format(slider.low)} to ${format(slider.high)})` : trained;
    row.classList.toggle("outside", outside);
  }
  return { row, show };
}

// One set of sliders for each input function.
function makeGroups(place, groups, onChange) {
  const sliders = [];
  for (const group of groups) {
    const set = element("fieldset");
    set.append(element("legend", "", group.name));
    if (group.drawing) set.append(element("p", "soft", SHAPES));
    for (const slider of group.sliders) {
      const made = makeSlider(slider, sliders.length, onChange);
      sliders.push(made);
      set.append(made.row);
    }
    place.append(set);
  }
  return sliders;
}

function fillList(list, names, onChange) {
  names.forEach((name, k) => list.append(Object.assign(element("option", "", name), { value: k })));
  list.addEventListener("change", () => onChange(Number(list.value)));
}

// The state as the part of an address after #, and back; invalid parts are ignored.
function toAddress({ values, sample, channel, steady, probe }) {
  const parts = sample === null ? { values: values.join(",") } : { sample };
  if (channel) parts.channel = channel;
  if (steady) parts.steady = 1;
  if (probe) parts.at = probe.map((x) => Number(x.toPrecision(5))).join(",");
  return "#" + Object.entries(parts).map(([name, value]) => `${name}=${value}`).join("&");
}

function fromAddress(hash, { sliders, samples, channels, coordinates }) {
  const parts = Object.fromEntries(hash.slice(1).split("&").map((part) => part.split("=")));
  const numbers = (text) => (text ?? "").split(",").map((word) => (word.trim() === "" ? NaN : Number(word)));
  const index = (text, count) => (/^\d+$/.test(text ?? "") && Number(text) < count ? Number(text) : null);
  const values = numbers(parts.values), probe = numbers(parts.at);
  const isGood = (list, count) => list.length === count && list.every(Number.isFinite);
  return {
    values: isGood(values, sliders) ? values : null,
    sample: index(parts.sample, samples),
    channel: index(parts.channel, channels) ?? 0,
    steady: parts.steady === "1",
    probe: isGood(probe, coordinates) ? probe : null,
  };
}
