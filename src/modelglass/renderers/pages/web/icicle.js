// Which part of the whole each module is: modules below what contains them, as wide as their share.

const STEP = 30; // pixels of a level
const LEVELS = 7;
const NARROWEST = 1.5;
const METRICS = { params: 'parameters', macs: 'MACs', nbytes: 'size', saved_nbytes: 'saved for backward' };

function icicle(modules, section) {
  const metrics = Object.keys(METRICS).filter((key) => modules.figures[key] && modules.figures[key][0] !== 0 && modules.figures[key].some(Boolean));
  if (!metrics.length || modules.count < 3) return;
  const totals = Object.fromEntries(metrics.map((key) => [key, totalsOf(modules, key)]));
  const usable = metrics.filter((key) => totals[key][0] > 0);
  if (!usable.length) return;
  let metric = usable.includes('macs') ? 'macs' : usable[0], root = 0, current = 0;
  const picture = drawn('svg', { class: 'icicle', role: 'application', tabindex: '0', 'aria-label': 'Shares of modules: arrows move, Enter opens, Backspace goes up' });
  const path = element('div', { class: 'crumbs' });
  const choose = element('select', { 'aria-label': 'Figure' }, usable.map((key) => element('option', { value: key, selected: key === metric }, METRICS[key])));
  const told = element('output', { class: 'status' });
  const show = METRIC_TEXTS;

  const draw = () => {
    const width = picture.clientWidth || 900, values = totals[metric], boxes = [];
    const place = (at, x, room, level) => {
      if (room < NARROWEST || level >= LEVELS) return;
      boxes.push({ at, x, room, level });
      let left = x;
      for (const child of modules.children[at]) {
        const part = values[at] ? (room * values[child]) / values[at] : 0;
        place(child, left, part, level + 1);
        left += part;
      }
    };
    place(root, 0, width, 0);
    const levels = Math.max(...boxes.map((box) => box.level)) + 1;
    picture.setAttribute('viewBox', `0 0 ${width} ${levels * STEP}`);
    picture.style.height = `${levels * STEP}px`;
    picture.replaceChildren(...boxes.map((box) => boxOf(box, values)));
    path.replaceChildren(...crumbs());
  };

  const boxOf = ({ at, x, room, level }, values) => {
    const name = visible(at === root ? modules.pathOf(at) : modules.names[at]);
    const type = modules.text('type', at);
    const letters = Math.floor((room - 10) / 7);
    const label = letters < 2 ? '' : name.length > letters ? `${name.slice(0, letters - 1)}…` : letters > name.length + type.length + 4 && type ? `${name} · ${visible(type)}` : name;
    return drawn('g', { class: `box k${hueOf(type)}${at === current && selection.place !== null ? ' chosen' : ''}`, 'data-place': at },
      drawn('title', {}, `${visible(modules.pathOf(at))} ${visible(type)}\n${show[metric](values[at])}, ${share(values[at], values[0])}`),
      drawn('rect', { x: x.toFixed(1), y: level * STEP, width: Math.max(0.8, room - 1).toFixed(1), height: STEP - 1.5, rx: room > 6 ? 3 : 0 }),
      label ? drawn('text', { x: (x + 6).toFixed(1), y: level * STEP + 19 }, label) : null);
  };

  const crumbs = () => {
    const above = [];
    for (let at = root; at >= 0; at = modules.parents[at]) above.unshift(at);
    return above.map((at) => element('button', { type: 'button', 'aria-current': at === root ? 'true' : null, on: { click: () => drill(at) } }, visible(modules.names[at] || modules.text('type', at) || '(root)')));
  };

  const drill = (at) => { root = modules.children[at].length ? at : modules.parents[at]; current = at; if (root < 0) root = 0; draw(); };
  const move = (at) => { if (at !== undefined && at >= 0) { current = at; selection.set(at, picture); draw(); } };
  const sibling = (step) => {
    const among = modules.children[modules.parents[current]] || [];
    return among[among.indexOf(current) + step];
  };
  picture.addEventListener('click', (event) => {
    const box = event.target.closest('[data-place]');
    if (!box) return;
    const at = Number(box.dataset.place), again = at === current && selection.place === at;
    move(at);
    if (again) drill(at === root ? Math.max(0, modules.parents[at]) : at);
  });
  picture.addEventListener('pointermove', (event) => {
    const box = event.target.closest('[data-place]');
    if (box) told.textContent = `${visible(modules.pathOf(Number(box.dataset.place)))}: ${show[metric](totals[metric][Number(box.dataset.place)])}, ${share(totals[metric][Number(box.dataset.place)], totals[metric][0])}`;
  });
  picture.addEventListener('keydown', (event) => {
    const acts = {
      ArrowDown: () => move(modules.children[current][0]), ArrowUp: () => move(modules.parents[current]),
      ArrowLeft: () => move(sibling(-1)), ArrowRight: () => move(sibling(1)),
      Enter: () => drill(current), Backspace: () => drill(Math.max(0, modules.parents[root])),
    };
    if (!acts[event.key]) return;
    acts[event.key]();
    event.preventDefault();
  });
  choose.addEventListener('change', () => { metric = choose.value; draw(); });
  section.append(element('h3', {}, 'Where it goes'),
    element('div', { class: 'tools' }, element('label', { class: 'tool' }, 'by ', choose), path, told), picture,
    element('p', { class: 't-quiet hint' }, 'A click chooses a module, a second one opens it; what contains it is above.'));
  draw();
  if (typeof ResizeObserver !== 'undefined') new ResizeObserver(draw).observe(picture);
  selection.follow((place, by) => {
    if (by === picture) return;
    if (place !== null) current = place;
    draw();
  });
}

const METRIC_TEXTS = { params: whole, macs: (number) => `${short(number)}MAC`, nbytes: size, saved_nbytes: size };

// What is saved is known of each module itself; its total is with all below it. What is not known counts as 0.
function totalsOf(modules, key) {
  const totals = Float64Array.from(modules.figures[key], (value) => value || 0);
  if (key === 'saved_nbytes') for (let at = modules.count - 1; at > 0; at -= 1) totals[modules.parents[at]] += totals[at];
  return totals;
}

function hueOf(text) {
  let sum = 0;
  for (let at = 0; at < text.length; at += 1) sum = (sum * 31 + text.charCodeAt(at)) % 9973;
  return sum % 8;
}
