// Which part of the whole each module is: modules below what contains them, as wide as their share.

const STEP = 30; // pixels of a level
const LEVELS = 7;
const NARROWEST = 1.5;
const METRICS = { params: 'parameters', macs: 'MACs', nbytes: 'size', saved_nbytes: 'saved for backward' };

function icicle(modules, section) {
  const metrics = Object.keys(METRICS).filter((key) => modules.figures[key] && modules.figures[key].some(Boolean));
  if (!metrics.length || modules.count < 3) return;
  let shares = new Shares(modules, true), metric = metrics.includes('macs') ? 'macs' : metrics[0], root = 0, current = 0;
  const picture = drawn('svg', { class: 'icicle', role: 'application', tabindex: '0', 'aria-label': 'Shares of modules: arrows move, Enter opens, Backspace goes up' });
  const path = element('div', { class: 'crumbs' });
  const choose = element('select', { 'aria-label': 'Figure' }, metrics.map((key) => element('option', { value: key, selected: key === metric }, METRICS[key])));
  const told = element('output', { class: 'status' });
  const about = (at) => `${shares.show(metric, at)}, ${share(shares.of(metric)[at], shares.of(metric)[0])}`;

  const draw = () => {
    const width = picture.clientWidth || 900, values = shares.of(metric), boxes = [];
    const place = (at, x, room, level) => {
      if (room < NARROWEST || level >= LEVELS) return;
      boxes.push({ at, x, room, level });
      let left = x;
      for (const child of shares.children[at]) {
        const part = values[at] ? (room * values[child]) / values[at] : 0;
        place(child, left, part, level + 1);
        left += part;
      }
    };
    place(root, 0, width, 0);
    const levels = Math.max(...boxes.map((box) => box.level)) + 1;
    picture.setAttribute('viewBox', `0 0 ${width} ${levels * STEP}`);
    picture.style.height = `${levels * STEP}px`;
    picture.replaceChildren(...boxes.map(boxOf));
    path.replaceChildren(...crumbs());
  };

  const boxOf = ({ at, x, room, level }) => {
    const name = visible(shares.name(at)), type = visible(shares.type(at));
    const letters = Math.floor((room - 10) / 7);
    let label = letters < 2 ? '' : name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
    if (label && type && letters > name.length + type.length + 4) label = `${name} · ${type}`;
    return drawn('g', { class: `box k${hueOf(shares.type(at))}${at === current && selection.place !== null ? ' chosen' : ''}`, 'data-place': at },
      drawn('title', {}, `${visible(shares.path(at))} ${type}\n${about(at)}`),
      drawn('rect', { x: x.toFixed(1), y: level * STEP, width: Math.max(0.8, room - 1).toFixed(1), height: STEP - 1.5, rx: room > 6 ? 3 : 0 }),
      label ? drawn('text', { x: (x + 6).toFixed(1), y: level * STEP + 19 }, label) : null);
  };

  const crumbs = () => {
    const above = [];
    for (let at = root; at >= 0; at = shares.parents[at]) above.unshift(at);
    return above.map((at) => element('button', { type: 'button', 'aria-current': at === root ? 'true' : null, on: { click: () => drill(at) } }, visible(shares.name(at))));
  };

  const drill = (at) => { root = Math.max(0, shares.children[at].length ? at : shares.parents[at]); current = at; draw(); };
  const move = (at) => {
    if (at === undefined || at < 0) return;
    current = at;
    selection.set(shares.rows[at].members[0], picture);
    draw();
  };
  const sibling = (step) => {
    const among = shares.children[shares.parents[current]] || [];
    return among[among.indexOf(current) + step];
  };
  const boxAt = (event) => { const box = event.target.closest('[data-place]'); return box ? Number(box.dataset.place) : -1; };
  picture.addEventListener('click', (event) => {
    const at = boxAt(event);
    if (at < 0) return;
    const again = at === current && selection.place === shares.rows[at].members[0];
    move(at);
    if (again) drill(at === root ? Math.max(0, shares.parents[at]) : at);
  });
  picture.addEventListener('pointermove', (event) => {
    const at = boxAt(event);
    if (at >= 0) told.textContent = `${visible(shares.path(at))}: ${about(at)}`;
  });
  picture.addEventListener('keydown', (event) => {
    const acts = {
      ArrowDown: () => move(shares.children[current][0]), ArrowUp: () => move(shares.parents[current]),
      ArrowLeft: () => move(sibling(-1)), ArrowRight: () => move(sibling(1)),
      Enter: () => drill(current), Backspace: () => drill(Math.max(0, shares.parents[root])),
    };
    if (!acts[event.key]) return;
    acts[event.key]();
    event.preventDefault();
  });
  choose.addEventListener('change', () => { metric = choose.value; draw(); });
  const each = element('input', { type: 'checkbox' });
  each.addEventListener('change', () => {
    const place = shares.rows[current].members[0];
    shares = new Shares(modules, !each.checked);
    root = 0;
    current = shares.rowOf(place);
    draw();
  });
  section.append(element('h3', { class: 'live' }, 'Where it goes'),
    element('div', { class: 'tools' }, element('label', { class: 'tool' }, 'by ', choose),
      modules.folded ? element('label', { class: 'tool' }, each, ' equal blocks one by one') : null, path, told), picture,
    element('p', { class: 't-quiet hint' }, 'A click chooses a module, a second one opens it; what contains it is above.'));
  draw();
  if (typeof ResizeObserver !== 'undefined') new ResizeObserver(draw).observe(picture);
  selection.follow((place, by) => {
    if (by === picture) return;
    if (place !== null) current = shares.rowOf(place);
    draw();
  });
}

// The rows of the tree, with what each comes to; what is not known counts as nothing.
class Shares {
  constructor(modules, isFolded) {
    this.modules = modules;
    this.rows = layerRows(modules, isFolded);
    this.totals = {};
    this.parents = [];
    this.children = this.rows.map(() => []);
    const above = [];
    this.rows.forEach((row, at) => {
      above.length = row.depth;
      this.parents.push(row.depth ? above[row.depth - 1] : -1);
      if (row.depth) this.children[above[row.depth - 1]].push(at);
      above.push(at);
    });
  }

  name(at) { return (this.rows[at].name || '(root)') + (this.rows[at].members.length > 1 ? ` ×${this.rows[at].members.length}` : ''); }

  path(at) { return this.modules.pathOf(this.rows[at].members[0]); }

  type(at) { return this.modules.text('type', this.rows[at].members[0]); }

  rowOf(place) { return Math.max(0, this.rows.findIndex((row) => !row.alias && row.members.includes(place))); }

  show(key, at) { return METRIC_TEXTS[key](this.of(key)[at]); }

  // What is saved for backward is known of each module itself: here it is with all below it.
  of(key) {
    if (this.totals[key]) return this.totals[key];
    const figures = this.modules.figures[key];
    const totals = Float64Array.from(this.rows, (row) => (row.alias ? 0 : row.members.reduce((sum, place) => sum + (figures[place] || 0), 0)));
    if (key === 'saved_nbytes') for (let at = totals.length - 1; at > 0; at -= 1) totals[this.parents[at]] += totals[at];
    this.totals[key] = totals;
    return totals;
  }
}

const METRIC_TEXTS = { params: whole, macs: (number) => `${short(number)}MAC`, nbytes: size, saved_nbytes: size };

function hueOf(text) {
  let sum = 0;
  for (let at = 0; at < text.length; at += 1) sum = (sum * 31 + text.charCodeAt(at)) % 9973;
  return sum % 8;
}
