// Arrays {shape, data} and the operations of a graph, with the names and arguments of NumPy; see graph.py.
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

  // Axes before the last two are the same in both factors, or only one of them has any.
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

  // An array as [entries before the axis, entries of the axis, numbers in an entry].
  const along = (x, axis) => [size(x.shape.slice(0, axis)), x.shape[axis], size(x.shape.slice(axis + 1))];

  const replaced = (shape, axis, ...sizes) => [...shape.slice(0, axis), ...sizes, ...shape.slice(axis + 1)];

  function take(x, indices, axis) {
    const [n, m, entry] = along(x, axis);
    const parts = [];
    for (let i = 0; i < n; i++)
      for (const j of indices.data)
        for (let k = 0; k < entry; k++) parts.push(x.data[(i * m + j) * entry + k]);
    return array(replaced(x.shape, axis, ...indices.shape), parts);
  }

  function concatenate(values, axis) {
    const parts = [];
    for (let i = 0; i < along(values[0], axis)[0]; i++)
      for (const x of values) {
        const count = size(x.shape.slice(axis));
        for (let j = 0; j < count; j++) parts.push(x.data[i * count + j]);
      }
    return array(replaced(values[0].shape, axis, values.reduce((sum, x) => sum + x.shape[axis], 0)), parts);
  }

  function reshape(x, shape) {
    const known = shape.reduce((product, n) => (n < 0 ? product : product * n), 1);
    return { shape: shape.map((n) => (n < 0 ? x.data.length / known : n)), data: x.data };
  }

  function transpose(x, axes) {
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

  function sum(x, axis) {
    const [n, m, entry] = along(x, axis);
    const data = new Float64Array(n * entry);
    x.data.forEach((value, i) => (data[Math.floor(i / (m * entry)) * entry + (i % entry)] += value));
    return { shape: replaced(x.shape, axis), data };
  }

  // The first of the largest entries.
  function argmax(x, axis) {
    const [n, m, entry] = along(x, axis);
    const data = new Float64Array(n * entry);
    for (let i = 0; i < data.length; i++) {
      const value = (j) => x.data[(Math.floor(i / entry) * m + j) * entry + (i % entry)];
      for (let j = 1; j < m; j++) if (value(j) > value(data[i])) data[i] = j;
    }
    return { shape: replaced(x.shape, axis), data };
  }

  const each = (f) => (...values) => map(f, ...values);
  const same = ["exp", "log", "sqrt", "tanh", "sin", "cos", "floor"].map((name) => [name, each(Math[name])]);
  return {
    ...Object.fromEntries(same),
    absolute: each(Math.abs),
    int32: each(Math.trunc),
    maximum: each((a, b) => Math.max(a, b)),
    minimum: each((a, b) => Math.min(a, b)),
    negative: each((a) => -a),
    add: each((a, b) => a + b),
    subtract: each((a, b) => a - b),
    multiply: each((a, b) => a * b),
    divide: each((a, b) => a / b),
    greater: each((a, b) => a > b),
    less: each((a, b) => a < b),
    equal: each((a, b) => a === b),
    logical_not: each((a) => !a),
    where: each((c, a, b) => (c ? a : b)),
    array, matmul, take, concatenate, reshape, transpose, sum, argmax,
  };
})();
