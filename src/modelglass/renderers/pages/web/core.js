// Elements, texts and figures. Texts come from files of strangers: they are only ever set as text.

const SVG = 'http://www.w3.org/2000/svg';

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'on') for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const element = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
const drawn = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);
const find = (selector, inside = document) => inside.querySelector(selector);

// Characters that a page would obey or hide, written out.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u180b-\u180f\ufe00-\ufe0f]/gu;
const LONGEST = 400;

function written(char) {
  const code = char.codePointAt(0), [mark, digits] = code < 0x100 ? ['x', 2] : code < 0x10000 ? ['u', 4] : ['U', 8];
  return `\\${mark}${code.toString(16).padStart(digits, '0')}`;
}

function visible(text) {
  const escaped = String(text).replace(HIDDEN, written);
  return escaped.length > LONGEST ? `${escaped.slice(0, LONGEST / 2)}…${escaped.slice(-LONGEST / 2)}` : escaped;
}

const whole = (number) => (number === null || number === undefined ? '' : number.toLocaleString('en-US'));

function short(number) {
  if (number === null || number === undefined) return '';
  const units = ['', ' K', ' M', ' G', ' T', ' P', ' E'];
  let value = number, unit = 0;
  while (value >= 999.5 && unit < units.length - 1) { value /= 1000; unit += 1; }
  if (!unit) return String(number);
  return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + units[unit];
}

function size(nbytes) {
  if (nbytes === null || nbytes === undefined) return '';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = nbytes, unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return unit ? `${value.toFixed(2)} ${units[unit]}` : `${nbytes} B`;
}

function share(part, all) {
  if (!all || !part) return '–';
  const percent = (100 * part) / all;
  return percent < 0.05 ? '<0.1 %' : `${percent.toFixed(1)} %`;
}

function figure(number) {
  if (number === null || number === undefined) return '–';
  if (!Number.isFinite(number)) return String(number);
  const text = Number(number.toPrecision(3));
  return number !== 0 && (Math.abs(number) < 1e-4 || Math.abs(number) >= 1e6) ? number.toExponential(2) : String(text);
}

async function unpacked(id) {
  const held = document.getElementById(id);
  if (!held || typeof DecompressionStream === 'undefined') return null;
  const bytes = Uint8Array.from(atob(held.textContent), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(stream).text());
}

// What repeats is numbered, and what hardly changes is written as differences.
const textOf = (column, row) => (column ? column.words[column.rows[row]] : '');

function summed(differences) {
  let before = 0;
  return differences.map((each) => (before += each));
}

async function copied(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element('textarea', { class: 'aside' });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  const before = button.textContent;
  button.textContent = 'copied';
  setTimeout(() => { button.textContent = before; }, 1200);
}

// Which module is looked at: every part of the page follows.
const selection = {
  place: null,
  followers: [],
  follow(act) { this.followers.push(act); },
  set(place, by = null) {
    this.place = place;
    for (const act of this.followers) act(place, by);
  },
};
