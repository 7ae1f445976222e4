// What weights are like: a row for each tensor with its histogram, and the chosen one large.

const STATISTICS = ['mean', 'std', 'min', 'max', 'rms', 'l2', 'absmax'];
const FIRST_SHOWN = new Set(['mean', 'std', 'min', 'max']);

function weightsTable(weights, section) {
  const count = weights.name.length;
  if (!count) return;
  const figures = weights.figures;
  const text = (column) => (row) => textOf(column, row);
  const columns = [
    { key: 'name', head: 'tensor', text: (row) => weights.name[row], value: (row) => weights.name[row], title: (row) => weights.name[row] },
    { key: 'findings', head: 'findings', text: text(weights.findings), value: text(weights.findings), tone: 'alarm', off: weights.findings.words.every((each) => !each) },
    { key: 'shape', head: 'shape', text: text(weights.shape), value: text(weights.shape), tone: 'quiet' },
    { key: 'dtype', head: 'dtype', text: text(weights.dtype), value: text(weights.dtype), tone: 'quiet' },
    { key: 'histogram', head: 'distribution', text: () => '', value: (row) => figures.std[row], cell: (row) => sparkline(weights.bins[row]), width: 150 },
    ...STATISTICS.filter((key) => figures[key]).map((key) => ({ key, head: key, number: true, off: !FIRST_SHOWN.has(key), value: (row) => figures[key][row], text: (row) => figure(figures[key][row]), title: (row) => String(figures[key][row] ?? '') })),
    { key: 'zeros', head: 'zeros', number: true, value: (row) => figures.zeros[row] / figures.count[row], text: (row) => share(figures.zeros[row], figures.count[row]), title: (row) => whole(figures.zeros[row]) },
    ...['nan', 'inf'].map((key) => ({ key, head: key === 'nan' ? 'NaN' : 'Inf', number: true, off: !figures[key].some(Boolean), value: (row) => figures[key][row], text: (row) => whole(figures[key][row]) })),
  ];
  const texts = [];
  const search = (row) => (texts[row] ??= `${weights.name[row]}\n${textOf(weights.dtype, row)}\n${textOf(weights.shape, row)}\n${textOf(weights.findings, row)}`.toLowerCase());
  const large = element('div', { class: 'histogram', 'aria-live': 'polite' });
  const grid = new Grid({ label: 'weights', columns, count, search, onSelect: (row) => large.replaceChildren(...histogram(weights, row)) });
  replaceTable(section, grid);
  grid.node.after(large);
  const found = weights.findings.rows.findIndex((word) => weights.findings.words[word]);
  large.replaceChildren(...histogram(weights, Math.max(0, found)));
}

function sparkline(bins) {
  if (!bins) return null;
  if (bins[0] === bins[1]) return drawn('svg', { class: 'spark', viewBox: '0 0 130 20', 'aria-hidden': 'true' }, drawn('path', { d: 'M63 20v-19h4V20z' }));
  const counts = bins.slice(2), most = Math.max(...counts), width = 130 / counts.length;
  let path = '';
  counts.forEach((number, at) => {
    if (number) path += `M${(at * width).toFixed(1)} 20v-${Math.max(1, (19 * number) / most).toFixed(1)}h${Math.max(0.6, width).toFixed(1)}V20z`;
  });
  return drawn('svg', { class: 'spark', viewBox: '0 0 130 20', 'aria-hidden': 'true' }, drawn('path', { d: path }));
}

function histogram(weights, row) {
  const bins = weights.bins[row], name = element('h3', {}, visible(weights.name[row]));
  if (!bins) return [name, element('p', {}, 'No finite values.')];
  if (bins[0] === bins[1]) return [name, element('p', {}, `All ${whole(weights.figures.count[row])} values are ${figure(bins[0])}.`)];
  const [low, high, ...counts] = bins, most = Math.max(...counts), room = 960 / counts.length;
  const bars = counts.map((number, at) => drawn('rect', { x: (20 + at * room).toFixed(1), y: (150 - (130 * number) / most).toFixed(1), width: Math.max(0.8, room - 1).toFixed(1), height: ((130 * number) / most).toFixed(1) },
    drawn('title', {}, `${whole(number)} values from ${figure(low + ((high - low) * at) / counts.length)} to ${figure(low + ((high - low) * (at + 1)) / counts.length)}`)));
  const zero = low < 0 && high > 0 ? 20 + (960 * -low) / (high - low) : null;
  return [name,
    element('p', { class: 't-quiet' }, `${whole(weights.figures.count[row])} values, ${visible(textOf(weights.shape, row))} ${visible(textOf(weights.dtype, row))}${textOf(weights.findings, row) ? `; findings: ${textOf(weights.findings, row)}` : ''}`),
    drawn('svg', { class: 'bars', viewBox: '0 0 1000 172', role: 'img', 'aria-label': `Histogram of ${visible(weights.name[row])}` }, ...bars,
      drawn('path', { class: 'grid-line', d: `M20 150.5H980${zero === null ? '' : `M${zero.toFixed(1)} 150v6`}` }),
      drawn('text', { x: 20, y: 168 }, figure(low)), drawn('text', { x: 980, y: 168, 'text-anchor': 'end' }, figure(high)),
      zero === null || zero < 80 || zero > 920 ? null : drawn('text', { x: zero.toFixed(1), y: 168, 'text-anchor': 'middle' }, '0'))];
}
