// Arrays {shape, data} and the operations of a graph, called as in NumPy; see _graph.py.
const np = (() => {
  const size = (shape) => shape.reduce((product, n) => product * n, 1);
  const array = (shape, data) => ({ shape, data: Float64Array.from(data) });
  const asArray = (x) => (typeof x === "number" ? array([], [x]) : x);

  // f of entries, with broadcasting: an axis of length 1 does not move.
  function map(f, ...values) {
    const given = values.map(asArray);
    const rank = Math.max(...given.map((x) => x.shape.length));
    const shapes = given.map((x) => [...Array(rank - x.shape.length).fill(1), ...x.shape]);
    const shape = Array.from({ length: rank }, (_, axis) => shapes.map((s) => s[axis]).find((n) => n !== 1) ?? 1);
    const steps = shapes.map((s) => s.map((n, axis) => (n === 1 ? 0 : size(s.slice(axis + 1)))));
    const data = new Float64Array(size(shape));
    const place = Array(rank).fill(0);
    const offsets = given.map(() => 0);
    const entries = given.map(() => 0);
    for (let i = 0; i < data.length; i++) {
      for (let k = 0; k < given.length; k++) entries[k] = given[k].data[offsets[k]];
      data[i] = f(...entries);
      for (let axis = rank - 1; axis >= 0; axis--) {
        place[axis] += 1;
        for (let k = 0; k < given.length; k++) offsets[k] += steps[k][axis];
        if (place[axis] < shape[axis]) break;
        for (let k = 0; k < given.length; k++) offsets[k] -= steps[k][axis] * shape[axis];
        place[axis] = 0;
      }
    }
    return { shape, data };
  }

  // Axes before the last two belong to one of the two factors.
  function matmul(a, b) {
    const [n, inner] = a.shape.slice(-2), m = b.shape.at(-1);
    const before = a.shape.length > b.shape.length ? a.shape.slice(0, -2) : b.shape.slice(0, -2);
    const data = new Float64Array(size(before) * n * m);
    for (let k = 0; k < size(before); k++) {
      const [atA, atB, at] = [(k * n * inner) % a.data.length, (k * inner * m) % b.data.length, k * n * m];
      for (let i = 0; i < n; i++)
        for (let j = 0; j < inner; j++) {
          const factor = a.data[atA + i * inner + j];
          for (let l = 0; l < m; l++) data[at + i * m + l] += factor * b.data[atB + j * m + l];
        }
    }
    return { shape: [...before, n, m], data };
  }

  // Axis 1 of an array, entry by entry: [rows, entries of axis 1, numbers in an entry].
  const rows = (x) => [x.shape[0], x.shape[1], size(x.shape.slice(2))];

  function take(x, indices) {
    const [n, m, entry] = rows(x);
    const parts = [];
    for (let i = 0; i < n; i++)
      for (const j of indices.data)
        for (let k = 0; k < entry; k++) parts.push(x.data[(i * m + j) * entry + k]);
    return array([n, indices.data.length, ...x.shape.slice(2)], parts);
  }

  function concatenate(...values) {
    const parts = [];
    for (let i = 0; i < values[0].shape[0]; i++)
      for (const x of values)
        for (let j = 0; j < x.shape[1]; j++) parts.push(x.data[i * x.shape[1] + j]);
    return array([values[0].shape[0], values.reduce((sum, x) => sum + x.shape[1], 0)], parts);
  }

  function transpose(x, ...axes) {
    const steps = x.shape.map((_, axis) => size(x.shape.slice(axis + 1)));
    const shape = axes.map((axis) => x.shape[axis]);
    const data = new Float64Array(x.data.length);
    for (let i = 0; i < data.length; i++) {
      let rest = i, from = 0;
      for (let axis = axes.length - 1; axis >= 0; axis--) {
        from += (rest % shape[axis]) * steps[axes[axis]];
        rest = Math.floor(rest / shape[axis]);
      }
      data[i] = x.data[from];
    }
    return { shape, data };
  }

  function sum(x) {
    const n = x.shape.at(-1);
    const data = new Float64Array(size(x.shape.slice(0, -1)));
    x.data.forEach((value, i) => (data[Math.floor(i / n)] += value));
    return { shape: x.shape.slice(0, -1), data };
  }

  const each = (f) => (...values) => map(f, ...values);
  const same = ["exp", "log", "sqrt", "tanh", "sin", "cos"].map((name) => [name, each(Math[name])]);
  return {
    ...Object.fromEntries(same),
    absolute: each(Math.abs),
    maximum: each((a, b) => Math.max(a, b)),
    minimum: each((a, b) => Math.min(a, b)),
    negative: each((a) => -a),
    add: each((a, b) => a + b),
    subtract: each((a, b) => a - b),
    multiply: each((a, b) => a * b),
    divide: each((a, b) => a / b),
    where: each((c, a, b) => (c ? a : b)),
    reshape: (x, ...shape) => ({ shape: [x.shape[0], ...shape], data: x.data }),
    array, matmul, take, concatenate, transpose, sum,
  };
})();
