// Small helpers to create elements, and to change them only if necessary.

// h creates an element: h('td', {class: 'n', onclick: f}, 'text', child…). It skips properties that
// are null or false.
export function h(tag, properties = {}, ...children) {
  const e = tag === 'svg' || tag === 'path' ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value === true ? '' : value);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

// put sets an element's text if it differs.
export function put(e, text) {
  if (e.shown !== text) {
    e.shown = text;
    e.textContent = text;
  }
}

// show hides or shows an element.
export function show(e, visible) {
  if (e.hidden === visible) e.hidden = !visible;
}

// replace replaces an element's children only if key differs from the last call.
export function replace(e, key, make) {
  if (e.key === key) return false;
  e.key = key;
  e.replaceChildren(...[make()].flat());
  return true;
}

// STATES maps states to a sign for users who do not see colours, and to a severity.
const STATES = {
  up: ['●', 'good'], ok: ['●', 'good'], stalled: ['▲', 'warn'], degraded: ['▲', 'warn'], lost: ['■', 'bad'], failed: ['■', 'bad'], absent: ['□', 'bad'],
};
export const sign = (state) => STATES[state]?.[0] || '○';
export const level = (state) => STATES[state]?.[1] || 'off';
