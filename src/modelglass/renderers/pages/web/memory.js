// What a run holds, kernel by kernel: told where the mouse is, and kept where it was clicked.

function memoryTimeline(memory, modules, section) {
  const picture = find('svg.timeline', section);
  if (!picture) return;
  const [, , width, height] = picture.getAttribute('viewBox').split(' ').map(Number);
  const spans = picture.dataset.spans.split(' ').map((span) => span.split(':').map(Number)), count = memory.op.rows.length;
  const held = Object.fromEntries(Object.entries(memory.held).map(([name, column]) => [name, summed(column)]));
  const totalAt = (moment) => Object.values(held).reduce((sum, column) => sum + column[moment], 0);
  const line = drawn('path', { class: 'cursor' });
  const kept = drawn('path', { class: 'cursor kept' });
  picture.append(line, kept);
  const about = element('div', { class: 'moment', 'aria-live': 'polite' });
  const float = element('div', { class: 'float', hidden: true });
  picture.parentElement.append(float);
  picture.after(about);
  let chosen = null;

  const at = (event) => {
    const room = picture.getBoundingClientRect();
    const x = ((event.clientX - room.left) / room.width) * width;
    const span = spans.find(([, , left, right]) => x >= left && x < right);
    if (!span) return null;
    const [first, after, left, right] = span;
    return Math.min(after - 1, first + Math.floor(((x - left) / (right - left)) * (after - first)));
  };
  const put = (cursor, moment) => {
    const [first, after, left, right] = spans.find(([, end]) => moment < end);
    const x = left + ((moment - first + 0.5) / (after - first)) * (right - left);
    cursor.setAttribute('d', `M${x.toFixed(1)} 20V${height - 20}`);
  };
  const words = (moment) => `${textOf(memory.phase, moment)}, ${textOf(memory.module, moment) || '(root)'}, ${textOf(memory.op, moment)}`;
  const parts = (moment) => Object.entries(held).filter(([, column]) => column[moment]).map(([name, column]) => [name.replaceAll('_', ' '), column[moment]]);

  picture.addEventListener('pointermove', (event) => {
    const moment = at(event);
    float.hidden = moment === null;
    if (moment === null) return;
    put(line, moment);
    float.replaceChildren(element('b', {}, `${size(totalAt(moment))} at kernel ${whole(moment + 1)}`), element('div', {}, visible(words(moment))),
      ...parts(moment).map(([name, nbytes]) => element('div', { class: 'part' }, element('span', {}, name), element('span', {}, size(nbytes)))));
    const room = picture.parentElement.getBoundingClientRect(), x = event.clientX - room.left;
    float.style.left = x > room.width / 2 ? '' : `${x + 16}px`;
    float.style.right = x > room.width / 2 ? `${room.width - x + 16}px` : '';
  });
  picture.addEventListener('pointerleave', () => { float.hidden = true; line.removeAttribute('d'); });

  const keep = (moment) => {
    chosen = moment;
    put(kept, moment);
    const path = textOf(memory.module, moment), place = modules.places.get(path), total = totalAt(moment);
    const link = place === undefined ? visible(path) : element('button', { type: 'button', on: { click: () => selection.set(place, picture) } }, visible(path || '(root)'));
    const change = moment ? total - totalAt(moment - 1) : 0;
    about.replaceChildren(
      element('p', {}, element('b', {}, `Kernel ${whole(moment + 1)} of ${whole(count)}`), `, ${textOf(memory.phase, moment)}: `, element('code', {}, visible(textOf(memory.op, moment))), ' in ', link),
      element('p', { class: 't-quiet' }, `${size(total)} (${whole(total)} bytes) held${change ? `, ${change > 0 ? '+' : '−'}${size(Math.abs(change))} since the kernel before` : ''}${moment === memory.at ? '; this is the peak' : ''}`),
      element('table', {}, element('tbody', {}, parts(moment).map(([name, nbytes]) => element('tr', {}, element('th', { scope: 'row' }, name), element('td', { class: 'n' }, size(nbytes)), element('td', { class: 'n t-quiet' }, whole(nbytes)), element('td', { class: 'n' }, share(nbytes, total)))))));
    picture.setAttribute('aria-valuenow', moment + 1);
    picture.setAttribute('aria-valuetext', `${size(total)}, ${words(moment)}`);
  };
  picture.addEventListener('click', (event) => { const moment = at(event); if (moment !== null) keep(moment); });
  picture.setAttribute('tabindex', '0');
  picture.setAttribute('role', 'slider');
  picture.setAttribute('aria-valuemin', 1);
  picture.setAttribute('aria-valuemax', count);
  picture.addEventListener('keydown', (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    keep(Math.min(count - 1, Math.max(0, (chosen ?? memory.at ?? 0) + steps[event.key])));
    event.preventDefault();
  });
  if (memory.at !== null) keep(memory.at);
}
