// The drawing of the data flow: moved, zoomed, searched, coloured, and as deep as is wanted.

function flowViewer(flows, modules, section) {
  const figure = find('.drawing', section);
  if (!figure || !flows.length) return;
  const stage = element('div', { class: 'stage', tabindex: '0', role: 'application', 'aria-label': 'Data flow: drag or arrows move, + and - zoom, 0 fits' });
  let flow = flows[0], picture = null, box = null, full = null, isFitted = true;

  const open = (chosen) => {
    flow = chosen;
    const parsed = new DOMParser().parseFromString(flow.svg, 'image/svg+xml').documentElement;
    picture = document.importNode(parsed, true);
    const [, , width, height] = picture.getAttribute('viewBox').split(' ').map(Number);
    full = { x: 0, y: 0, width, height };
    picture.removeAttribute('width');
    picture.removeAttribute('height');
    picture.setAttribute('preserveAspectRatio', 'xMidYMin meet');
    stage.replaceChildren(picture);
    stage.style.height = `${Math.min(720, Math.max(260, height))}px`;
    fit();
    colour();
    mark();
  };
  const look = () => picture.setAttribute('viewBox', `${box.x} ${box.y} ${box.width} ${box.height}`);
  // As large as it is drawn, from the top; smaller only where that shows most of it.
  const fit = () => {
    const room = { width: stage.clientWidth || 900, height: stage.clientHeight || 500 };
    const scale = Math.max(full.width / room.width, Math.min(full.height / room.height, 1.5), 1);
    box = { width: room.width * scale, height: room.height * scale, y: 0 };
    box.x = (full.width - box.width) / 2;
    look();
    isFitted = true;
  };
  const zoom = (factor, at = { x: 0.5, y: 0.5 }) => {
    const width = Math.min(4 * full.width, Math.max(120, box.width * factor)), part = width / box.width;
    box = { x: box.x + box.width * (1 - part) * at.x, y: box.y + box.height * (1 - part) * at.y, width, height: box.height * part };
    look();
    isFitted = false;
  };
  const pan = (x, y) => { box.x += x; box.y += y; isFitted = false; look(); };

  let from = null, moved = false;
  stage.addEventListener('pointerdown', (event) => { from = { x: event.clientX, y: event.clientY }; moved = false; });
  stage.addEventListener('pointermove', (event) => {
    if (!from || !(event.buttons & 1)) { from = null; return; }
    const scale = box.width / stage.clientWidth;
    if (Math.hypot(event.clientX - from.x, event.clientY - from.y) < 3 && !moved) return;
    moved = true;
    stage.setPointerCapture(event.pointerId);
    pan((from.x - event.clientX) * scale, (from.y - event.clientY) * scale);
    from = { x: event.clientX, y: event.clientY };
  });
  stage.addEventListener('pointerup', () => { from = null; });
  stage.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    const room = stage.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, { x: (event.clientX - room.left) / room.width, y: (event.clientY - room.top) / room.height });
    event.preventDefault();
  }, { passive: false });
  stage.addEventListener('keydown', (event) => {
    const step = box.width / 12;
    const acts = {
      '+': () => zoom(1 / 1.25), '=': () => zoom(1 / 1.25), '-': () => zoom(1.25), 0: fit,
      ArrowLeft: () => pan(-step, 0), ArrowRight: () => pan(step, 0), ArrowUp: () => pan(0, -step), ArrowDown: () => pan(0, step),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
    acts[event.key]();
    event.preventDefault();
  });
  stage.addEventListener('click', (event) => {
    const node = event.target.closest('[data-node]');
    if (!node || moved) return;
    const about = flow.nodes[node.dataset.node];
    const place = about && modules.places.get(about.paths[0] || about.path);
    note.textContent = about ? about.about.map(visible).join(' · ') : '';
    if (place !== undefined) selection.set(place, stage);
  });

  const colour = () => {
    const figures = modules.figures[shade.value], byNode = {};
    let most = 0;
    for (const [id, about] of Object.entries(flow.nodes)) {
      const places = (about.paths.length ? about.paths : [about.path]).map((path) => modules.places.get(path)).filter((place) => place !== undefined);
      byNode[id] = about.kind === 'module' && figures ? places.reduce((sum, place) => sum + (figures[place] || 0), 0) : null;
      most = Math.max(most, byNode[id] || 0);
    }
    for (const node of picture.querySelectorAll('[data-node]')) {
      const value = byNode[node.dataset.node];
      for (const rect of node.querySelectorAll(':scope > rect')) {
        rect.style.fill = figures && value !== null && value !== undefined ? `color-mix(in srgb, var(--heat) ${Math.round((75 * value) / (most || 1))}%, var(--paper))` : '';
      }
    }
  };
  const mark = () => {
    const path = selection.place === null ? null : modules.paths[selection.place];
    const words = search.value.trim().toLowerCase();
    let number = 0;
    for (const node of picture.querySelectorAll('[data-node]')) {
      const about = flow.nodes[node.dataset.node];
      const found = Boolean(words) && about.about.join('\n').toLowerCase().includes(words);
      number += found;
      node.classList.toggle('found', found);
      node.classList.toggle('chosen', path !== null && about.kind !== 'operators' && (about.path === path || about.paths.includes(path)) && about.path !== '');
    }
    return number;
  };

  const depth = element('select', { 'aria-label': 'Levels' }, flows.map((each, at) => element('option', { value: at }, at ? `${each.depth} level${each.depth > 1 ? 's' : ''}` : 'as deep as is readable')));
  depth.addEventListener('change', () => open(flows[depth.value]));
  const shades = ['', ...['params', 'macs', 'saved_nbytes', 'nbytes'].filter((key) => modules.figures[key])];
  const shade = element('select', { 'aria-label': 'Colour' }, shades.map((key) => element('option', { value: key }, key ? METRICS[key] : 'stage')));
  shade.addEventListener('change', colour);
  const search = element('input', { type: 'search', placeholder: 'Search', 'aria-label': 'Search the flow', spellcheck: 'false' });
  const status = element('output', { class: 'status' });
  search.addEventListener('input', () => {
    const number = mark();
    status.textContent = search.value.trim() ? `${number} found` : '';
    const first = find('.found', picture);
    if (first) { const at = first.getBBox(); box.x = at.x + at.width / 2 - box.width / 2; box.y = at.y + at.height / 2 - box.height / 3; look(); }
  });
  const note = element('p', { class: 't-quiet hint', role: 'status' }, 'A click shows a module; Ctrl and the wheel zoom.');
  const button = (text, label, act) => element('button', { type: 'button', 'aria-label': label, on: { click: act } }, text);
  const tools = element('div', { class: 'tools' }, search, element('label', { class: 'tool' }, 'show ', depth), element('label', { class: 'tool' }, 'colour ', shade),
    button('+', 'Zoom in', () => zoom(1 / 1.25)), button('−', 'Zoom out', () => zoom(1.25)), button('Fit', 'Fit', () => fit()), status);
  figure.classList.add('still');
  figure.before(tools, stage, note);
  open(flow);
  if (typeof ResizeObserver !== 'undefined') new ResizeObserver(() => { if (isFitted) fit(); }).observe(stage);
  selection.follow(mark);
}
