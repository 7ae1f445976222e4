// A table of any number of rows, of which only those in sight are elements. With depths it is a tree.

const ROW = 28; // pixels
const AROUND = 8; // rows beyond those in sight

class Grid {
  // columns: {key, head, text(row), value(row), number, title(row), bar(row), cell(row), off, width}
  constructor({ label, columns, count, depths = null, search, tools = [], opened = null, onSelect, onOpen }) {
    Object.assign(this, { label, columns, count, depths, search, onSelect, onOpen });
    this.id = `grid-${(Grid.number = (Grid.number || 0) + 1)}`;
    this.order = null;
    this.query = '';
    this.current = -1;
    this.ends = depths && this.endsOf(depths);
    this.open = opened || new Uint8Array(count);
    this.build(tools);
    this.refresh();
  }

  endsOf(depths) {
    const ends = new Int32Array(this.count), stack = [];
    for (let row = 0; row < this.count; row += 1) {
      while (stack.length && depths[stack[stack.length - 1]] >= depths[row]) ends[stack.pop()] = row;
      stack.push(row);
    }
    while (stack.length) ends[stack.pop()] = this.count;
    return ends;
  }

  build(tools) {
    const input = element('input', { type: 'search', placeholder: 'Search', 'aria-label': `Search ${this.label}`, spellcheck: 'false' });
    input.addEventListener('input', () => { this.query = input.value.trim().toLowerCase(); this.refresh(); this.scroller.scrollTop = 0; });
    this.status = element('output', { class: 'status' });
    const folds = this.depths ? [
      element('button', { type: 'button', on: { click: () => this.openAll(1) } }, 'Unfold all'),
      element('button', { type: 'button', on: { click: () => this.openAll(0) } }, 'Fold all'),
    ] : [];
    this.bar = element('div', { class: 'tools' }, input, ...folds, ...tools, this.chooser(), this.status);
    this.head = element('div', { class: 'line heads', role: 'row' });
    this.body = element('div', { class: 'rows', role: 'rowgroup' });
    this.scroller = element('div', {
      class: 'scroller', role: this.depths ? 'treegrid' : 'grid', tabindex: '0', id: this.id, 'aria-label': this.label,
      'aria-readonly': 'true',
    }, element('div', { role: 'rowgroup', class: 'top' }, this.head), this.body);
    this.scroller.addEventListener('scroll', () => this.draw(), { passive: true });
    this.scroller.addEventListener('keydown', (event) => this.onKey(event));
    this.body.addEventListener('click', (event) => this.onClick(event));
    this.node = element('div', { class: 'grid' }, this.bar, this.scroller);
    if (typeof ResizeObserver !== 'undefined') new ResizeObserver(() => { this.lay(); this.draw(); }).observe(this.scroller);
  }

  chooser() {
    const boxes = this.columns.slice(1).map((column) => {
      const box = element('input', { type: 'checkbox', checked: !column.off });
      box.addEventListener('change', () => { column.off = !box.checked; this.lay(); this.draw(); });
      return element('label', {}, box, ` ${column.head}`);
    });
    return element('details', { class: 'chooser' }, element('summary', {}, 'Columns'), element('div', {}, ...boxes));
  }

  get shownColumns() { return this.columns.filter((column) => !column.off); }

  // Each column as wide as its texts; what room is left goes to names first, then to other texts.
  lay() {
    const columns = this.shownColumns, widths = columns.map((column, place) => this.widthOf(column, place));
    const left = this.scroller.clientWidth - widths.reduce((sum, each) => sum + each, 0);
    const wide = columns.map((column, place) => (place ? (column.number || column.width ? 0 : 1) : 2));
    const shares = wide.reduce((sum, each) => sum + each, 0);
    const final = widths.map((width, place) => Math.floor(width + (left > 0 ? (left * wide[place]) / shares : 0)));
    this.scroller.style.setProperty('--columns', final.map((width) => `${width}px`).join(' '));
    this.scroller.style.setProperty('--wide', `${final.reduce((sum, each) => sum + each, 0)}px`);
    this.head.replaceChildren(...columns.map((column) => this.headOf(column)));
    this.scroller.setAttribute('aria-colcount', columns.length);
  }

  widthOf(column, place) {
    if (!place) return Math.min(230, 0.46 * window.innerWidth);
    if (column.width) return column.width;
    const sample = Math.min(this.count, 300);
    let longest = column.head.length + 2;
    for (let at = 0; at < sample; at += 1) longest = Math.max(longest, column.text(Math.floor((at * this.count) / sample)).length);
    const pixels = Math.ceil(Math.min(longest, 24) * (column.number ? 8 : 7.4) + 22);
    return column.number ? pixels : Math.min(pixels, 190);
  }

  headOf(column) {
    const sort = this.order && this.order.column === column ? (this.order.sign < 0 ? 'descending' : 'ascending') : null;
    const button = element('button', { type: 'button', class: 'head', tabindex: '-1' }, column.head);
    button.addEventListener('click', () => this.sortBy(column));
    return element('div', { class: column.number ? 'cell n' : 'cell', role: 'columnheader', 'aria-sort': sort }, button);
  }

  sortBy(column) {
    const first = column.number ? -1 : 1;
    if (!this.order || this.order.column !== column) this.order = { column, sign: first };
    else this.order = this.order.sign === first ? { column, sign: -first } : null;
    this.refresh();
    this.scroller.scrollTop = 0;
  }

  openAll(state) {
    this.open.fill(state);
    if (!state) this.open[0] = 1;
    this.refresh();
  }

  refresh() {
    this.shown = this.rowsToShow();
    this.lay();
    this.body.style.height = `${this.shown.length * ROW}px`;
    this.scroller.setAttribute('aria-rowcount', this.shown.length + 1);
    this.status.textContent = this.query ? `${whole(this.matches)} of ${whole(this.count)}` : `${whole(this.count)} rows`;
    this.draw();
  }

  rowsToShow() {
    const found = this.query ? this.found() : null;
    this.matches = found ? found.reduce((sum, each) => sum + (each === 2), 0) : this.count;
    const rows = [];
    if (this.order || !this.depths) {
      for (let row = 0; row < this.count; row += 1) if (!found || found[row] === 2) rows.push(row);
      return this.order ? this.sorted(rows) : rows;
    }
    for (let row = 0; row < this.count;) {
      if (!found || found[row]) rows.push(row);
      row = found || this.open[row] ? row + 1 : this.ends[row];
    }
    return rows;
  }

  // 2: a row that matches; 1: one above it.
  found() {
    const found = new Uint8Array(this.count), above = [];
    for (let row = 0; row < this.count; row += 1) {
      if (this.depths) {
        above.length = this.depths[row];
        above.push(row);
      }
      if (!this.search(row).includes(this.query)) continue;
      found[row] = 2;
      for (let at = above.length - 2; at >= 0 && !found[above[at]]; at -= 1) found[above[at]] = 1;
    }
    return found;
  }

  sorted(rows) {
    const { column, sign } = this.order;
    const values = rows.map((row) => column.value(row));
    return rows.map((_, place) => place).sort((a, b) => compare(values[a], values[b], sign)).map((place) => rows[place]);
  }

  draw() {
    const top = this.scroller.scrollTop, height = this.scroller.clientHeight || 600;
    const first = Math.max(0, Math.floor(top / ROW) - AROUND);
    const after = Math.min(this.shown.length, Math.ceil((top + height) / ROW) + AROUND);
    const lines = [];
    for (let place = first; place < after; place += 1) lines.push(this.line(place));
    this.body.replaceChildren(...lines);
    const current = this.shown.indexOf(this.current);
    if (current >= first && current < after) this.scroller.setAttribute('aria-activedescendant', `${this.id}-${this.current}`);
    else this.scroller.removeAttribute('aria-activedescendant');
  }

  line(place) {
    const row = this.shown[place];
    const hasMore = this.depths && this.ends[row] > row + 1;
    const line = element('div', {
      class: row === this.current ? 'line current' : 'line', role: 'row', id: `${this.id}-${row}`, 'data-row': row,
      'aria-rowindex': place + 2, 'aria-selected': row === this.current ? 'true' : 'false',
      'aria-level': this.depths ? this.depths[row] + 1 : null,
      'aria-expanded': hasMore && !this.order ? String(Boolean(this.open[row] || this.query)) : null,
    }, this.shownColumns.map((column, at) => this.cell(column, row, at, hasMore)));
    line.style.transform = `translateY(${place * ROW}px)`;
    return line;
  }

  cell(column, row, at, hasMore) {
    const full = column.title ? column.title(row) : '';
    const cell = element('div', {
      class: `cell${column.number ? ' n' : ''}${column.tone ? ` t-${column.tone}` : ''}`, role: at ? 'gridcell' : 'rowheader', title: full ? visible(full) : null,
    });
    if (column.cell) cell.append(...[column.cell(row)].filter(Boolean));
    else if (at || !this.depths || this.order) cell.textContent = visible(this.order && column.flat ? column.flat(row) : column.text(row));
    else {
      cell.style.paddingLeft = `${8 + 16 * this.depths[row]}px`;
      const mark = hasMore ? (this.open[row] || this.query ? '▾' : '▸') : '';
      cell.append(element('span', { class: 'fold', 'aria-hidden': 'true' }, mark), visible(column.text(row)));
    }
    if (column.bar) {
      const bar = element('span', { class: 'bar', 'aria-hidden': 'true' });
      bar.style.width = `${(100 * column.bar(row)).toFixed(1)}%`;
      cell.prepend(bar);
    }
    return cell;
  }

  onClick(event) {
    const line = event.target.closest('[data-row]');
    if (!line) return;
    const row = Number(line.dataset.row);
    if (event.target.closest('.fold') && this.depths && !this.order) this.toggle(row);
    this.choose(row);
  }

  toggle(row, state = !this.open[row]) {
    this.open[row] = state ? 1 : 0;
    this.refresh();
  }

  choose(row, { tell = true } = {}) {
    this.current = row;
    this.bringIntoSight(row);
    this.draw();
    if (tell && this.onSelect) this.onSelect(row);
  }

  // A row that somebody else chose: everything above it is opened.
  reveal(row) {
    if (row < 0) return;
    if (!this.shown.includes(row)) {
      if (this.query) { this.query = ''; find('input[type=search]', this.bar).value = ''; }
      for (let above = row - 1, depth = this.depths ? this.depths[row] : 0; above >= 0 && depth > 0; above -= 1) {
        if (this.depths[above] < depth) { this.open[above] = 1; depth = this.depths[above]; }
      }
      this.refresh();
    }
    this.choose(row, { tell: false });
  }

  bringIntoSight(row) {
    const place = this.shown.indexOf(row);
    if (place < 0) return;
    const top = place * ROW, room = this.scroller.clientHeight - 2 * ROW;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top > this.scroller.scrollTop + room) this.scroller.scrollTop = top - room;
  }

  onKey(event) {
    if (event.target !== this.scroller || event.ctrlKey || event.metaKey || event.altKey) return;
    const place = this.shown.indexOf(this.current), row = this.current;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      const last = this.shown.length - 1;
      const next = place < 0 ? 0 : Math.min(last, Math.max(0, place + steps[event.key]));
      if (last >= 0) this.choose(this.shown[next]);
    } else if (event.key === 'ArrowRight' && this.depths && row >= 0) this.toggle(row, true);
    else if (event.key === 'ArrowLeft' && this.depths && row >= 0) {
      if (this.open[row] && this.ends[row] > row + 1) this.toggle(row, false);
      else this.choose(this.above(row));
    } else if ((event.key === 'Enter' || event.key === ' ') && row >= 0) {
      if (this.onOpen) this.onOpen(row);
    } else return;
    event.preventDefault();
  }

  above(row) {
    let above = row - 1;
    while (above > 0 && this.depths[above] >= this.depths[row]) above -= 1;
    return Math.max(0, above);
  }
}

// The table that reads without a script makes room, except in print.
function replaceTable(section, grid) {
  const still = find('.wide', section);
  if (!still) { section.append(grid.node); return; }
  still.classList.add('still');
  if (still.nextElementSibling && still.nextElementSibling.matches('.more')) still.nextElementSibling.classList.add('still');
  still.before(grid.node);
  grid.refresh();
}
