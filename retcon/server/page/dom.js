// Elements from values. Text only ever becomes text nodes: nothing here parses markup.

export const $ = (id) => document.getElementById(id);

/** A new element; null and false children are left out. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Set text only where it changed, so that live regions stay quiet. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** One row per item in `parent`, rows of the same key kept, so that bars can move rather than jump. */
export function keyed(parent, items, key, make, update) {
  const old = new Map([...parent.children].map((node) => [node.rowKey, node]));
  const rows = items.map((item) => {
    const name = String(key(item));
    const node = old.get(name) ?? make(item);
    node.rowKey = name;
    update(node, item);
    return node;
  });
  if (rows.some((node, place) => parent.children[place] !== node) || parent.children.length !== rows.length) {
    parent.replaceChildren(...rows);
  }
}

/** A number with so many digits after the point and a real minus sign. */
export function number(value, digits = 2) {
  if (!Number.isFinite(value)) return "–";
  const text = Math.abs(value).toFixed(digits);
  return (value < 0 && Number(text) !== 0 ? "−" : "") + text;
}

/** A number that always shows its sign. */
export function signed(value, digits = 2) {
  const text = number(value, digits);
  return value > 0 && Number(text) !== 0 ? `+${text}` : text;
}

export const many = (count, one, more = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;
