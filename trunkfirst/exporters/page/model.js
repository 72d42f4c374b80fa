// From the sliders to a field: arithmetic alone, which runs in Node too. `np` and `operator` are defined above.
const TYPES = { f8: Float64Array, f4: Float32Array, i4: Int32Array, u1: Uint8Array };

function unpack({ shape, type, bytes }) {
  const text = atob(bytes);
  const raw = new Uint8Array(text.length);
  for (let i = 0; i < raw.length; i++) raw[i] = text.charCodeAt(i);
  return { shape, data: new TYPES[type](raw.buffer) };
}

// start + row @ matrix
function affine(start, row, matrix) {
  const [rows, columns] = matrix.shape;
  const result = Float64Array.from(start);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) result[j] += row[i] * matrix.data[i * columns + j];
  return result;
}

// How unlike all training inputs an input is, as Novelty in Python; above 1 for an outlier.
function makeOutlierScore(novelty, trained) {
  const [centre, spread, location, scale] = ["centre", "spread", "location", "scale"].map((name) => unpack(novelty[name]).data);
  const matrix = unpack(novelty.matrix), inverse = unpack(novelty.inverse);
  const centred = (inputs) => inputs.map((x, i) => x - centre[i]);
  const coordinates = (row) => affine(new Float64Array(matrix.shape[1]), row, matrix);
  const norm = (row) => Math.sqrt(row.reduce((sum, x) => sum + x * x, 0));
  const places = trained.map((inputs) => coordinates(centred(inputs)).subarray(0, novelty.near));
  return (inputs) => {
    const row = centred(inputs), steps = row.map((x, i) => x / spread[i]), here = coordinates(row);
    const squares = places.map((there) => there.reduce((sum, z, k) => sum + (z - here[k]) ** 2, 0));
    const rest = affine(row, here.map((z) => -z), inverse);
    const highest = steps.reduce((a, b) => Math.max(a, b)), lowest = steps.reduce((a, b) => Math.min(a, b));
    const measures = [highest, -lowest, norm(here), Math.sqrt(Math.min(...squares)), norm(rest)];
    return Math.max(...measures.map((measure, k) => (measure - location[k]) / scale[k])) / novelty.limit;
  };
}

function makeModel(content) {
  const base = unpack(content.base).data, shapes = unpack(content.shapes);
  const table = unpack(content.table), seen = unpack(content.seen);
  const { offset, scale, isPositive } = content.output;
  const [rank, points] = table.shape;
  const [rows, sliders] = seen.shape;
  const seenRow = (row) => seen.data.subarray(row * sliders, (row + 1) * sliders);
  const inputsOf = (values) => affine(base, values, shapes);
  const outlierScore = makeOutlierScore(content.novelty, Array.from({ length: rows }, (_, row) => inputsOf(seenRow(row))));
  const coefficientsOf = (inputs) => operator.coefficients(np.array([1, inputs.length], inputs)).data;

  // Functions that depend on the input have no table: the operator computes them at all points.
  const all = unpack(content.points), encoded = rank ? null : operator.basis(all);

  function movingField(coefficients, channel) {
    const values = operator.outputs(np.array([1, coefficients.length], coefficients), encoded, all).data;
    return Float64Array.from({ length: points }, (_, p) => values[p * scale.length + channel]);
  }

  function fieldOf(coefficients, channel) {
    if (!rank) return movingField(coefficients, channel);
    const field = new Float64Array(points);
    for (let r = 0; r < rank; r++) {
      const factor = coefficients[channel * rank + r], start = r * points;
      for (let p = 0; p < points; p++) field[p] += factor * table.data[start + p];
    }
    for (let p = 0; p < points; p++) {
      const value = scale[channel] * (offset + field[p]);
      field[p] = isPositive ? Math.exp(value) : value;
    }
    return field;
  }

  // At any point, computed by the trunk.
  function valueAt(coefficients, point, channel) {
    const at = np.array([1, point.length], point);
    return operator.outputs(np.array([1, coefficients.length], coefficients), operator.basis(at), at).data[channel];
  }

  return { inputsOf, coefficientsOf, fieldOf, valueAt, outlierScore, seenRow, rows, sliders };
}

const isOutside = (slider, value) => {
  const slack = 1e-9 * Math.max(Math.abs(slider.low), Math.abs(slider.high));
  return !(value >= slider.low - slack && value <= slider.high + slack);
};

// Lowest and highest finite number of some fields, and whether all are finite.
function rangeOf(...fields) {
  let low = Infinity, high = -Infinity, isWhole = true;
  for (const field of fields)
    for (const value of field) {
      if (!Number.isFinite(value)) isWhole = false;
      else {
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
  return { low, high, isWhole };
}

// A number in a short form: 0.25, 1.3e-5.
function format(value, digits = 4) {
  if (!Number.isFinite(value)) return "no value here";
  const size = Math.abs(value), isPlain = size === 0 || (size >= 1e-3 && size < 1e6);
  return isPlain ? String(Number(value.toPrecision(digits))) : value.toExponential(digits - 1).replace(/\.?0*e\+?/, "e");
}
