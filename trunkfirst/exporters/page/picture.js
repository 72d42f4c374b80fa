// From a field to a picture on a canvas. What lies under each pixel is found once; a frame only looks it up.
const PIXELS = 360;
const MARGIN = { left: 52, right: 12, top: 10, bottom: 34 };

// The box that is drawn, a little air around dots and curves, and the shape of the picture: as wide as it truly is
// unless that is a strip.
function boxOf(places) {
  const columns = places.shape[1], low = [Infinity, Infinity], high = [-Infinity, -Infinity];
  places.data.forEach((value, i) => {
    low[i % columns] = Math.min(low[i % columns], value);
    high[i % columns] = Math.max(high[i % columns], value);
  });
  for (let k = 0; k < columns; k++) if (!(high[k] > low[k])) [low[k], high[k]] = [low[k] - 0.5, high[k] + 0.5];
  const ratio = (high[1] - low[1]) / (high[0] - low[0]);
  return { low, high, ratio: columns === 2 && ratio > 0.4 && ratio < 1.6 ? ratio : columns === 2 ? 1 : 0.7 };
}

// Which points, up to four, each pixel lies between, and their weights; -1 outside.
function rasterise({ kind, places, triangles, box }) {
  const width = PIXELS, height = Math.round(PIXELS * box.ratio), count = places.shape[0];
  const corners = new Int32Array(4 * width * height).fill(-1), weights = new Float32Array(4 * width * height);
  const x = (p) => ((places.data[2 * p] - box.low[0]) / (box.high[0] - box.low[0])) * width - 0.5;
  const y = (p) => (1 - (places.data[2 * p + 1] - box.low[1]) / (box.high[1] - box.low[1])) * height - 0.5;
  const put = (i, j, points, shares) => {
    if (i < 0 || j < 0 || i >= width || j >= height) return;
    corners.set(points, 4 * (j * width + i));
    weights.set(shares, 4 * (j * width + i));
  };
  if (kind === "grid") fillGrid(places, box, width, height, put);
  if (kind === "dots") {
    const radius = Math.min(8, Math.max(2, 0.4 * Math.sqrt((width * height) / count)));
    for (let p = 0; p < count; p++)
      for (let i = Math.ceil(x(p) - radius); i <= x(p) + radius; i++)
        for (let j = Math.ceil(y(p) - radius); j <= y(p) + radius; j++)
          if ((i - x(p)) ** 2 + (j - y(p)) ** 2 <= radius ** 2) put(i, j, [p, p, p, p], [1, 0, 0, 0]);
  }
  for (let t = 0; t < triangles.shape[0]; t++) fillTriangle(triangles.data.subarray(3 * t, 3 * t + 3), x, y, put);
  return { width, height, corners, weights };
}

const rasterOf = (drawing) => (drawing.kind === "curve" ? null : (drawing.raster ??= rasterise(drawing)));

// Between the four corners of its cell every pixel is bilinear.
function fillGrid({ data }, { low, high }, width, height, put) {
  const lines = [0, 1].map((k) => [...new Set(data.filter((_, i) => i % 2 === k))].sort((a, b) => a - b));
  const [columns, rows] = lines, at = lines.map((line) => new Map(line.map((value, k) => [value, k])));
  const points = new Int32Array(columns.length * rows.length);
  for (let p = 0; p < points.length; p++) points[at[0].get(data[2 * p]) * rows.length + at[1].get(data[2 * p + 1])] = p;
  const cellOf = (line, value) => {
    let k = 0;
    while (k < line.length - 2 && line[k + 1] < value) k++;
    const next = Math.min(k + 1, line.length - 1), size = line[next] - line[k];
    return [k, next, size > 0 ? Math.min(1, Math.max(0, (value - line[k]) / size)) : 0];
  };
  const across = Array.from({ length: width }, (_, i) => cellOf(columns, low[0] + ((i + 0.5) / width) * (high[0] - low[0])));
  for (let j = 0; j < height; j++) {
    const [below, above, up] = cellOf(rows, high[1] - ((j + 0.5) / height) * (high[1] - low[1]));
    across.forEach(([left, right, over], i) => put(i, j,
      [left * rows.length + below, right * rows.length + below, left * rows.length + above, right * rows.length + above].map((k) => points[k]),
      [(1 - over) * (1 - up), over * (1 - up), (1 - over) * up, over * up]));
  }
}

function fillTriangle([a, b, c], x, y, put) {
  const [ax, ay, bx, by, cx, cy] = [x(a), y(a), x(b), y(b), x(c), y(c)];
  const area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay);
  if (area === 0) return;
  const slack = 1e-4; // so that pixels on an edge belong to a triangle
  for (let i = Math.ceil(Math.min(ax, bx, cx) - slack); i <= Math.max(ax, bx, cx) + slack; i++)
    for (let j = Math.ceil(Math.min(ay, by, cy) - slack); j <= Math.max(ay, by, cy) + slack; j++) {
      const atB = ((i - ax) * (cy - ay) - (cx - ax) * (j - ay)) / area;
      const atC = ((bx - ax) * (j - ay) - (i - ax) * (by - ay)) / area;
      if (atB >= -slack && atC >= -slack && atB + atC <= 1 + slack) put(i, j, [a, b, c, c], [1 - atB - atC, atB, atC, 0]);
    }
}

// The colours of a field into `pixels`; where it has no value they are `none`.
function paint({ corners, weights }, field, { low, high }, colours, none, pixels) {
  const factor = high > low ? 255 / (high - low) : 0;
  for (let k = 0, at = 0; k < pixels.length; k++, at += 4) {
    if (corners[at] < 0) {
      pixels[k] = 0;
      continue;
    }
    let value = weights[at] * field[corners[at]];
    if (weights[at] !== 1)
      for (let corner = at + 1; corner < at + 4; corner++) value += weights[corner] * field[corners[corner]];
    const place = factor ? (value - low) * factor : 128;
    // Neither below 0 nor above it: not a number.
    pixels[k] = value - value === 0 ? colours[place < 0 ? 0 : place > 255 ? 255 : (place + 0.5) | 0] : none;
  }
}

// 256 colours as the 32 bits of a pixel.
function palette(packed) {
  const { data } = unpack(packed);
  return Uint32Array.from({ length: 256 }, (_, k) =>
    ((255 << 24) | (data[3 * k + 2] << 16) | (data[3 * k + 1] << 8) | data[3 * k]) >>> 0);
}

// Round numbers from low to high, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((n) => n * power >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const found = [];
  for (let k = first; k * step <= high + 1e-9 * step && found.length < 20; k++) found.push(Number((k * step).toPrecision(8)));
  return found;
}

const element = (name, className = "", text = "") =>
  Object.assign(document.createElement(name), { className, textContent: text });
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// A picture in a figure. draw(fields, range, words): the first field in colours, or all of them as curves, with the
// half width `band` of an interval around the first.
function makePicture(figure, drawing, colours, onResize) {
  const canvas = element("canvas"), context = canvas.getContext("2d"), raster = rasterOf(drawing);
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  figure.append(canvas);
  const image = raster && colourImage(raster, figure, colours);
  const legend = raster ? null : figure.appendChild(element("p", "legend soft"));
  const order = Array.from({ length: drawing.places.shape[0] }, (_, p) => p);
  if (!raster) order.sort((p, q) => drawing.places.data[p] - drawing.places.data[q]);
  let plot = null, width = 0; // asking the canvas in every frame would lay out the page in every frame
  new ResizeObserver(() => {
    if (width === canvas.clientWidth) return;
    width = canvas.clientWidth;
    onResize();
  }).observe(canvas);

  function draw(fields, range, { title, empty, probe, band }) {
    plot = layOut(canvas, context, width || (width = canvas.clientWidth || 320), drawing.box, raster ? null : roomy(range));
    if (raster) image.show(context, plot, fields[0].values, range);
    drawAxes(context, plot, drawing.axes);
    if (!raster && band) drawBand(context, plot, drawing.places.data, order, fields[0].values, band);
    if (!raster) fields.forEach((field, k) => drawCurve(context, plot, drawing.places.data, order, field.values, k));
    if (legend) describe(legend, fields);
    const hasValues = range.low <= range.high;
    if (!hasValues) drawWords(context, plot, empty);
    if (probe) drawProbe(context, plot, probe, raster);
    canvas.setAttribute("aria-label", `${title}, ${hasValues ? `from ${format(range.low)} to ${format(range.high)}` : empty}`);
  }

  // Where in the domain a pointer is; null beside the picture.
  function placeOf(event) {
    const box = canvas.getBoundingClientRect();
    const x = (event.clientX - box.left - plot.left) / plot.width, y = (event.clientY - box.top - plot.top) / plot.height;
    if (x < 0 || x > 1 || y < 0 || y > 1) return null;
    const place = [plot.x[0] + x * (plot.x[1] - plot.x[0]), plot.y[1] - y * (plot.y[1] - plot.y[0])];
    return raster ? place : place.slice(0, 1);
  }
  return { canvas, figure, draw, placeOf };
}

// An empty canvas as wide as it is shown, and where on it the picture goes. A curve has a range of its own.
function layOut(canvas, context, width, box, range) {
  const ratio = window.devicePixelRatio || 1;
  const plot = { left: MARGIN.left, top: MARGIN.top, width: width - MARGIN.left - MARGIN.right };
  plot.height = Math.round(plot.width * box.ratio);
  const height = plot.height + MARGIN.top + MARGIN.bottom;
  const sizes = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== sizes[0] || canvas.height !== sizes[1]) {
    [canvas.width, canvas.height] = sizes;
    canvas.style.height = `${height}px`;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  plot.x = [box.low[0], box.high[0]];
  plot.y = range ? [range.low, range.high] : [box.low[1], box.high[1]];
  plot.toX = (x) => plot.left + ((x - plot.x[0]) / (plot.x[1] - plot.x[0])) * plot.width;
  plot.toY = (y) => plot.top + (1 - (y - plot.y[0]) / (plot.y[1] - plot.y[0])) * plot.height;
  return plot;
}

function colourImage(raster, figure, colours) {
  const hidden = Object.assign(element("canvas"), { width: raster.width, height: raster.height });
  const inner = hidden.getContext("2d"), data = inner.createImageData(raster.width, raster.height);
  const pixels = new Uint32Array(data.data.buffer);
  const bar = figure.appendChild(Object.assign(element("canvas", "bar"), { width: 256, height: 1 }));
  bar.setAttribute("aria-hidden", "true");
  const strip = bar.getContext("2d").createImageData(256, 1);
  new Uint32Array(strip.data.buffer).set(colours);
  bar.getContext("2d").putImageData(strip, 0, 0);
  const numbers = figure.appendChild(element("p", "numbers"));
  numbers.append(element("span"), element("span"), element("span"));

  function show(context, plot, field, { low, high }) {
    const hasValues = low <= high;
    if (hasValues) {
      paint(raster, field, { low, high }, colours, 0xff999999, pixels);
      inner.putImageData(data, 0, 0);
      context.drawImage(hidden, plot.left, plot.top, plot.width, plot.height);
    }
    [low, (low + high) / 2, high].forEach((value, k) => (numbers.children[k].textContent = hasValues ? format(value) : "\u00a0"));
  }
  return { show };
}

// Air above and below a curve; something to draw where it is flat or absent.
function roomy({ low, high }) {
  if (!(low <= high)) return { low: -1, high: 1 };
  const air = 0.05 * (high - low) || 0.5 * Math.abs(low) || 1;
  return { low: low - air, high: high + air };
}

function drawAxes(context, plot, [xName, yName]) {
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = ink("soft");
  context.strokeStyle = ink("line");
  context.lineWidth = 1;
  const bottom = plot.top + plot.height;
  context.strokeRect(plot.left - 0.5, plot.top - 0.5, plot.width + 1, plot.height + 1);
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const x of ticks(...plot.x, Math.max(2, plot.width / 80))) context.fillText(format(x), plot.toX(x), bottom + 5);
  context.fillText(xName, plot.left + plot.width / 2, bottom + 19);
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const y of ticks(...plot.y, Math.max(2, plot.height / 60))) context.fillText(format(y, 3), plot.left - 6, plot.toY(y));
  context.textAlign = "left";
  context.fillText(yName, 2, plot.top + plot.height / 2);
}

const CURVES = [{ colour: "curve", dash: [], width: 2.5 }, { colour: "ink", dash: [6, 4], width: 1.5 }];

function drawCurve(context, plot, x, order, field, index) {
  const { colour, dash, width } = CURVES[index];
  context.save();
  context.beginPath();
  context.rect(plot.left, plot.top, plot.width, plot.height);
  context.clip();
  context.beginPath();
  context.strokeStyle = ink(colour);
  context.lineWidth = width;
  context.setLineDash(dash);
  let isDown = false;
  for (const p of order) {
    const isValue = Number.isFinite(field[p]);
    if (isValue) context[isDown ? "lineTo" : "moveTo"](plot.toX(x[p]), plot.toY(field[p]));
    isDown = isValue;
  }
  context.stroke();
  context.restore();
}

function drawBand(context, plot, x, order, field, half) {
  const edge = (p, sign) => context.lineTo(plot.toX(x[p]), plot.toY(field[p] + sign * half[p]));
  context.save();
  context.beginPath();
  context.rect(plot.left, plot.top, plot.width, plot.height);
  context.clip();
  context.beginPath();
  for (const p of order) edge(p, 1);
  for (const p of [...order].reverse()) edge(p, -1);
  context.globalAlpha = 0.25;
  context.fillStyle = ink("curve");
  context.fill();
  context.restore();
}

const describe = (legend, fields) => {
  const text = fields.length > 1 ? fields.map(({ name }, k) => `${["solid", "dashed"][k]}: ${name}`).join("; ") : "";
  if (legend.textContent !== text) legend.textContent = text;
};

function drawWords(context, plot, text) {
  context.fillStyle = ink("ink");
  context.font = "16px system-ui, sans-serif";
  context.textAlign = "center";
  context.fillText(text, plot.left + plot.width / 2, plot.top + plot.height / 2);
}

function drawProbe(context, plot, probe, isMap) {
  const x = plot.toX(probe[0]), y = isMap ? plot.toY(probe[1]) : 0;
  const lines = isMap ? [[x - 9, y, x + 9, y], [x, y - 9, x, y + 9]] : [[x, plot.top, x, plot.top + plot.height]];
  for (const [colour, width] of [["#000", isMap ? 4 : 0], ["#fff", 2]]) {
    context.strokeStyle = isMap ? colour : ink("soft");
    context.lineWidth = isMap ? width : 1;
    context.beginPath();
    for (const [a, b, c, d] of lines) {
      context.moveTo(a, b);
      context.lineTo(c, d);
    }
    context.stroke();
  }
}
