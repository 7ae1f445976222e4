// Tables that are in the page as they are: their heads sort them.

function sortable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  if (!body || body.rows.length < 3 || find('th.d', body)) return;
  const first = [...body.rows];
  heads.forEach((head, place) => {
    if (!head.textContent) return;
    const button = element('button', { type: 'button', class: 'head' }, head.textContent);
    head.replaceChildren(button);
    button.addEventListener('click', () => {
      const next = { none: 'descending', descending: 'ascending', ascending: 'none' };
      const order = next[head.getAttribute('aria-sort') || 'none'];
      for (const each of heads) each.removeAttribute('aria-sort');
      if (order !== 'none') head.setAttribute('aria-sort', order);
      body.append(...(order === 'none' ? first : sortedRows(first, place, order === 'descending' ? -1 : 1)));
    });
  });
}

function sortedRows(rows, place, sign) {
  const value = (row) => {
    const cell = row.cells[place];
    return cell.dataset.v === undefined ? numberIn(cell.textContent) : Number(cell.dataset.v);
  };
  const keyed = rows.map((row) => [value(row), row]);
  keyed.sort(([a], [b]) => compare(a, b, sign));
  return keyed.map(([, row]) => row);
}

const UNITS = { K: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };

function numberIn(text) {
  if (text === '–' || text === '') return null;
  const parts = /^[≤≥<]?\s*(-?[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(%|[KMGTPE]i?B?|B)?$/.exec(text);
  return parts ? Number(parts[1].replaceAll(',', '')) * (UNITS[parts[2]] || 1) : text;
}

// What is not known comes last, whichever the direction.
function compare(a, b, sign) {
  const empty = (value) => value === null || value === undefined || value === '';
  if (empty(a) || empty(b)) return empty(a) - empty(b);
  if (typeof a === 'number' && typeof b === 'number') return sign * (a - b);
  return sign * (String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0);
}
