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

function makeModel(content) {
  const base = unpack(content.base).data, shapes = unpack(content.shapes);
  const table = unpack(content.table), seen = unpack(content.seen);
  const { offset, scale, isPositive } = content.output;
  const [rank, points] = table.shape;
  const [rows, sliders] = seen.shape;
  const familiarity = { offset: unpack(content.familiarity.offset).data, matrix: unpack(content.familiarity.matrix) };
  const place = (values) => affine(familiarity.offset, values, familiarity.matrix);
  const seenRow = (row) => seen.data.subarray(row * sliders, (row + 1) * sliders);
  const places = Array.from({ length: rows }, (_, row) => place(seenRow(row)));

  const inputsOf = (values) => affine(base, values, shapes);
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

  // The distance to the nearest training input, relative to the largest distance between neighbours in training.
  function outlierScore(values) {
    const here = place(values);
    const squares = places.map((there) => there.reduce((sum, z, k) => sum + (z - here[k]) ** 2, 0));
    return Math.sqrt(Math.min(...squares)) / (content.familiarity.distance || 1);
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
