// Small helpers to make elements and to change only what differs.

// h makes an element: h('td', {class: 'n', onclick: f}, 'text', child…). Properties with
// a value of null or false are left out.
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

// put sets an element's text, if it is another one.
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

// replace gives an element other children only if key differs from the last one.
export function replace(e, key, make) {
  if (e.key === key) return false;
  e.key = key;
  e.replaceChildren(...[make()].flat());
  return true;
}

// STATES has for each state the sign that stands before the word, for those who do not see colours, and how bad it is.
const STATES = {
  up: ['●', 'good'], ok: ['●', 'good'], stalled: ['▲', 'warn'], degraded: ['▲', 'warn'], lost: ['■', 'bad'], failed: ['■', 'bad'], absent: ['□', 'bad'],
};
export const sign = (state) => STATES[state]?.[0] || '○';
export const level = (state) => STATES[state]?.[1] || 'off';
