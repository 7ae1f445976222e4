// Everything together. Without the data, or in a browser that cannot unpack it, the page stays as it is.

function followSections() {
  const links = new Map([...document.querySelectorAll('nav a')].map((link) => [link.getAttribute('href').slice(1), link]));
  if (!links.size || typeof IntersectionObserver === 'undefined') return;
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) isIntersecting ? seen.add(target.id) : seen.delete(target.id);
    const first = [...links.keys()].find((id) => seen.has(id));
    for (const [id, link] of links) id === first ? link.setAttribute('aria-current', 'true') : link.removeAttribute('aria-current');
  }, { rootMargin: '-60px 0px -50% 0px' });
  for (const id of links.keys()) watch.observe(document.getElementById(id));
}

// The address names the chosen module, so that a link leads to it.
function followAddress(modules) {
  const named = () => {
    let text = location.hash.slice(1);
    try { text = decodeURIComponent(text); } catch { /* it is taken as it is */ }
    return modules.places.get(text);
  };
  selection.follow((place) => {
    const hash = place === null ? ' ' : `#${encodeURIComponent(modules.paths[place])}`;
    try { history.replaceState(null, '', hash.trim() || location.pathname); } catch { /* a page in a frame has no address */ }
  });
  const go = () => { if (location.hash && named() !== undefined) selection.set(named()); };
  window.addEventListener('hashchange', go);
  go();
}

function enhance(view) {
  const section = (name) => document.getElementById(`section-${name}`);
  const modules = new Modules(view.modules || { name: [], parent: [], texts: {}, figures: {}, atLeast: [], folded: null });
  if (view.modules && section('layers')) {
    layerTable(modules, section('layers'), Boolean(modules.texts.output));
    icicle(modules, section('layers'));
  }
  if (view.flows && section('flow')) flowViewer(view.flows, modules, section('flow'));
  if (view.memory && section('memory')) memoryTimeline(view.memory, modules, section('memory'));
  if (view.weights && section('weights')) weightsTable(view.weights, section('weights'));
  modulePanel(modules);
  followAddress(modules);
}

for (const table of document.querySelectorAll('.wide table')) sortable(table);
followSections();
unpacked('modelglass-view').then((view) => {
  if (view) enhance(view);
  document.documentElement.dataset.ready = 'true';
});
