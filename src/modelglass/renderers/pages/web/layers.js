// The modules of the model: what is known of each, the tree of them, and a panel about the one that is chosen.

class Modules {
  constructor(view) {
    this.names = view.name;
    this.count = view.name.length;
    this.parents = summed(view.parent);
    this.texts = view.texts;
    this.figures = view.figures;
    this.failed = view.failed;
    this.atLeast = new Set(view.atLeast);
    this.paths = [];
    this.depths = new Int32Array(this.count);
    this.children = this.names.map(() => []);
    this.places = new Map();
    for (let place = 0; place < this.count; place += 1) {
      const parent = this.parents[place];
      const above = parent < 0 ? '' : this.paths[parent];
      this.paths.push(above ? `${above}.${this.names[place]}` : this.names[place]);
      if (parent >= 0) {
        this.depths[place] = this.depths[parent] + 1;
        this.children[parent].push(place);
      }
      this.places.set(this.paths[place], place);
    }
    this.folded = view.folded && view.folded.map(([name, depth, members, alias]) => ({ name, depth, members: alias ? members : summed(members), alias }));
  }

  text(name, place) { return textOf(this.texts[name], place); }

  pathOf(place) { return this.paths[place] || '(root)'; }

  // Of several modules together; null where it is not known of one of them.
  total(name, places) {
    const column = this.figures[name];
    let sum = 0;
    for (const place of places) {
      if (column[place] === null) return null;
      sum += column[place];
    }
    return sum;
  }
}

const FIGURES = {
  params: { head: 'parameters', show: whole },
  share: { head: '%' },
  nbytes: { head: 'size', show: size },
  macs: { head: 'MACs', show: short },
  saved_nbytes: { head: 'saved itself', show: size },
  trainable: { head: 'trainable', show: whole, off: true },
  buffers: { head: 'buffers', show: whole, off: true },
  calls: { head: 'calls', show: whole, off: true },
};
const TEXTS = { type: 'type', output: 'output', tensors: 'tensors', dtype: 'dtype', input: 'input', config: 'settings' };
const OFF = new Set(['input', 'config', 'tensors', 'dtype']);

function layerRows(modules, isFolded) {
  if (isFolded && modules.folded) return modules.folded;
  return modules.names.map((name, place) => ({ name: name || '(root)', depth: modules.depths[place], members: [place] }));
}

function layerColumns(modules, rows, hasRun) {
  const all = modules.figures.params ? modules.figures.params[0] : 0;
  const nameOf = (row) => rows[row].name || '(root)';
  const columns = [{ key: 'name', head: 'name', text: (row) => nameOf(row) + (rows[row].members.length > 1 ? `  ×${rows[row].members.length}` : ''),
    value: nameOf, flat: (row) => modules.pathOf(rows[row].members[0]) + (rows[row].members.length > 1 ? `  ×${rows[row].members.length}` : ''),
    title: (row) => modules.pathOf(rows[row].members[0]) }];
  const add = (key) => {
    if (!modules.texts[key]) return;
    const text = (row) => (rows[row].alias && key !== 'type' ? '' : modules.text(key, rows[row].members[0]));
    columns.push({ key, head: TEXTS[key], text, value: text, title: text, off: OFF.has(key) && (hasRun || key === 'config'), tone: key === 'type' ? 'accent' : 'quiet' });
  };
  add('type'); add('input'); add('output'); add('tensors'); add('dtype');
  for (const [key, { head, show, off }] of Object.entries(FIGURES)) {
    if (key === 'share' ? !all : !modules.figures[key]) continue;
    const value = (row) => (rows[row].alias ? null : modules.total(key === 'share' ? 'params' : key, rows[row].members));
    if (key === 'share') {
      columns.push({ key, head, number: true, value, text: (row) => share(value(row), all), bar: (row) => Math.min(1, (value(row) || 0) / all), width: 96 });
    } else {
      const isLeast = (row) => key === 'macs' && rows[row].members.some((place) => modules.atLeast.has(place));
      const text = (row) => (rows[row].alias ? '' : value(row) === null ? '?' : value(row) === 0 ? '–' : (isLeast(row) ? '≥ ' : '') + show(value(row)));
      columns.push({ key, head, number: true, off, value, text, title: (row) => whole(value(row)) });
    }
  }
  add('config');
  return columns;
}

const MOST_OPEN = 60;

function openedRows(rows) {
  const open = new Uint8Array(rows.length);
  const perLevel = [];
  for (const { depth } of rows) perLevel[depth] = (perLevel[depth] || 0) + 1;
  let level = 0, sum = 0;
  while (level < perLevel.length && (level < 2 || sum + perLevel[level] <= MOST_OPEN) && sum + perLevel[level] < 5000) sum += perLevel[level++];
  rows.forEach(({ depth }, row) => { open[row] = depth < level - 1 ? 1 : 0; });
  if (rows.length <= MOST_OPEN) open.fill(1);
  return open;
}

function layerTable(modules, section, hasRun) {
  const place = element('div', {});
  let grid = null, rows = null, rowOf = null;
  const make = (isFolded) => {
    rows = layerRows(modules, isFolded);
    rowOf = new Int32Array(modules.count).fill(-1);
    rows.forEach((row, at) => { if (!row.alias) for (const member of row.members) rowOf[member] = at; });
    const texts = [];
    const search = (row) => (texts[row] === undefined ? (texts[row] = searched(row)) : texts[row]);
    const searched = (row) => {
      const first = rows[row].members[0];
      return `${modules.paths[first]}\n${rows[row].name}\n${modules.text('type', first)}\n${modules.text('config', first)}`.toLowerCase();
    };
    const tools = [];
    if (modules.folded) {
      const box = element('input', { type: 'checkbox', checked: !isFolded });
      box.addEventListener('change', () => make(!box.checked));
      tools.push(element('label', { class: 'tool' }, box, ' equal blocks one by one'));
    }
    grid = new Grid({
      label: 'layers', columns: layerColumns(modules, rows, hasRun), count: rows.length, depths: Int32Array.from(rows, (row) => row.depth),
      search, tools, opened: openedRows(rows), onSelect: (row) => selection.set(rows[row].members[0], grid),
    });
    place.replaceChildren(grid.node);
    grid.refresh();
    if (selection.place !== null) grid.reveal(rowOf[selection.place]);
  };
  make(Boolean(modules.folded));
  const still = find('.wide', section);
  if (still) still.classList.add('still');
  (still || find('h2', section)).after(place);
  grid.refresh();
  selection.follow((chosen, by) => { if (by !== grid && chosen !== null) grid.reveal(rowOf[chosen]); });
}

function modulePanel(modules) {
  const body = element('div', { class: 'panel-body' });
  const close = element('button', { type: 'button', class: 'close', 'aria-label': 'Close' }, '×');
  const panel = element('aside', { class: 'panel', hidden: true, 'aria-label': 'Chosen module' }, close, body);
  close.addEventListener('click', () => selection.set(null));
  document.body.append(panel);
  selection.follow((place) => {
    panel.hidden = place === null;
    document.body.classList.toggle('beside', place !== null);
    if (place !== null) body.replaceChildren(...aboutModule(modules, place));
  });
  document.addEventListener('keydown', (event) => { if (event.key === 'Escape' && !panel.hidden) selection.set(null); });
}

function aboutModule(modules, place) {
  const path = modules.paths[place];
  const copy = element('button', { type: 'button' }, 'Copy path');
  copy.addEventListener('click', () => copied(path, copy));
  const facts = element('dl', { class: 'facts' });
  const tell = (label, text) => { if (text) facts.append(element('dt', {}, label), element('dd', {}, visible(text))); };
  for (const [key, { head, show }] of Object.entries(FIGURES)) {
    const value = modules.figures[key] && modules.figures[key][place];
    if (value) tell(head, show === whole ? whole(value) : `${show(value)} (${whole(value)})`);
  }
  for (const key of ['input', 'output', 'dtype', 'tensors', 'operators']) tell(key, modules.text(key, place));
  const settings = modules.text('config', place);
  const above = modules.parents[place];
  const up = above >= 0 ? element('button', { type: 'button', on: { click: () => selection.set(above) } }, 'Up') : null;
  return [
    element('h3', {}, visible(path || '(root)')), element('p', { class: 't-accent' }, visible(modules.text('type', place))),
    element('p', { class: 'tools' }, copy, up), facts,
    ...(settings ? [element('h4', {}, 'Settings'), element('p', { class: 'settings' }, visible(settings))] : []),
  ];
}
