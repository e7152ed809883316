(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("scripted-page");

  // -- light and dark
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  const store = (value) => { try { localStorage.setItem("retcon-theme", value); } catch { /* a file may have no store */ } };
  try {
    const kept = localStorage.getItem("retcon-theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch { /* as above */ }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    store(root.dataset.theme);
    label();
  });
  system.addEventListener("change", label);
  label();

  // -- contents: closed where they would stand in the way
  const contents = document.querySelector("nav details");
  if (contents && !matchMedia("(min-width: 72rem)").matches) contents.open = false;

  // -- what is folded opens where a link leads to it
  const unfold = () => {
    const to = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!to) return;
    const fold = to.closest("details.fold") ?? to.querySelector(":scope > details.fold");
    if (fold) fold.open = true;
    to.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();

  // -- the outcomes behind a number
  const data = JSON.parse(document.getElementById("data").textContent);
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const digit = new Int16Array(128);
  for (let i = 0; i < 64; i++) digit[alphabet.charCodeAt(i)] = i;
  const decoded = new Map();
  const codes = (name) => {
    if (!decoded.has(name)) {
      const { wide, codes: text } = data.columns[name];
      const out = new Int32Array(data.rows);
      for (let row = 0, at = 0; row < data.rows; row++) {
        let code = 0;
        for (let k = 0; k < wide; k++) code = code * 64 + digit[text.charCodeAt(at++)];
        out[row] = code;
      }
      decoded.set(name, out);
    }
    return decoded.get(name);
  };
  const value = (name, row) => data.columns[name].values[codes(name)[row]];

  const select = (filter) => {
    const tests = Object.entries(filter).map(([name, wanted]) => [codes(name), new Set(wanted)]);
    const found = [];
    for (let row = 0; row < data.rows; row++) {
      if (tests.every(([column, wanted]) => wanted.has(column[row]))) found.push(row);
    }
    return found;
  };

  // The mean over questions, each averaged over its rows at every budget first: as the tables are made.
  const mean = (rows, name) => {
    const cells = new Map();
    for (const row of rows) {
      const v = value(name, row);
      if (v === null) continue;
      const key = `${codes("dataset")[row]} ${codes("setting")[row]} ${codes("question_id")[row]} ${codes("budget")[row]}`;
      const cell = cells.get(key) || [0, 0];
      cell[0] += v; cell[1] += 1;
      cells.set(key, cell);
    }
    if (!cells.size) return null;
    let sum = 0;
    for (const [total, count] of cells.values()) sum += total / count;
    return sum / cells.size;
  };

  const make = (tag, text, attributes = {}) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    for (const [name, v] of Object.entries(attributes)) element.setAttribute(name, v);
    return element;
  };
  const number = (v) => v === null ? "" : Number.isInteger(v) ? String(v) : v.toFixed(3);
  const heading = (name) => name.replace(/^judge_/, "right by ").replaceAll("_", " ");

  const table = (names, rows, right = () => false) => {
    const box = make("div", undefined, { class: "box", tabindex: "0", role: "group", "aria-label": "Table" });
    const grid = make("table"), head = make("tr"), body = make("tbody");
    names.forEach((name, i) => head.append(make("th", name, right(i) ? { scope: "col", class: "n" } : { scope: "col" })));
    const top = make("thead");
    top.append(head);
    const add = (more) => {
      for (const row of more) {
        const line = make("tr");
        row.forEach((cell, i) => line.append(make("td", cell, right(i) ? { class: "n" } : {})));
        body.append(line);
      }
    };
    add(rows);
    grid.append(top, body);
    box.append(grid);
    return { box, add };
  };

  const words = (filter) => Object.entries(filter).map(([name, wanted]) => {
    const all = data.columns[name].values;
    const shown = wanted.map((code) => all[code]).filter((v) => v !== "" && v !== null);
    if (!shown.length) return null;
    const few = shown.length > 8 ? `${shown.length} of ${all.length}` : shown.join(" or ");
    return `${heading(name)}: ${few}`;
  }).filter(Boolean).join("; ");

  const summary = (rows) => {
    const by = new Map();
    for (const row of rows) {
      const action = value("action", row);
      if (!by.has(action)) by.set(action, []);
      by.get(action).push(row);
    }
    const numbers = [...data.judges, ...data.measured];
    const order = [...by.keys()].sort((a, b) => (b === "retain") - (a === "retain"));
    const lines = order.map((action) => {
      const some = by.get(action);
      const questions = new Set(some.map((row) => codes("question_id")[row]));
      return [action, ...numbers.map((name) => number(mean(some, name))), String(some.length), String(questions.size)];
    });
    if (order.length === 2) {
      const [first, second] = order.map((action) => by.get(action));
      const gap = numbers.map((name) => {
        const a = mean(second, name), b = mean(first, name);
        return a === null || b === null ? "" : `${a - b >= 0 ? "+" : "−"}${Math.abs(a - b).toFixed(3)}`;
      });
      lines.push([`${order[1]} less ${order[0]}`, ...gap, "", ""]);
    }
    return table(["action", ...numbers.map(heading), "outcomes", "questions"], lines, (i) => i > 0).box;
  };

  const STEP = 200;
  const listing = (rows) => {
    const part = make("div");
    const varies = (name) => name === "question_id" || rows.some((row) => codes(name)[row] !== codes(name)[rows[0]]);
    const kept = data.shown.filter(varies);
    const same = data.shown.filter((name) => !varies(name) && value(name, rows[0]) !== "");
    const names = [...kept, ...data.judges, ...data.measured];
    if (same.length) {
      part.append(make("p", `All of them: ${same.map((name) => `${heading(name)} ${value(name, rows[0])}`).join(", ")}.`));
    }
    const one = (row) => names.map((name) => {
      const v = value(name, row);
      return typeof v === "number" ? number(v) : v === null ? "" : v;
    });
    const first = kept.length;
    const { box, add } = table(names.map(heading), rows.slice(0, STEP).map(one), (i) => i >= first || names[i] === "budget");
    part.append(box);
    let shown = Math.min(STEP, rows.length);
    if (shown < rows.length) {
      const more = make("button", undefined, { type: "button", class: "more" });
      const say = () => { more.textContent = `Show more (${shown} of ${rows.length})`; };
      more.addEventListener("click", () => {
        add(rows.slice(shown, shown + STEP).map(one));
        shown = Math.min(shown + STEP, rows.length);
        if (shown < rows.length) say(); else more.remove();
      });
      say();
      part.append(more);
    }
    return part;
  };

  const where = (from) => {
    const parts = [];
    const line = from.closest("tr"), cell = from.closest("td, th");
    const [title, data] = [from.closest("article, .card")?.querySelector("h3"), from.closest("figure")?.querySelector("h4")];
    if (title) parts.push(data ? `${title.textContent} ${data.textContent}` : title.textContent);
    if (line && cell) {
      const grid = line.closest("table");
      const named = [...line.children].filter((each) => !each.querySelector("[data-f]"));
      const head = grid.tHead.rows[0].cells[cell.cellIndex];
      let above = line.previousElementSibling;
      while (above && !above.classList.contains("group")) above = above.previousElementSibling;
      if (above) named.unshift(above);
      parts.push([...named.map((each) => each.textContent.trim()), head ? head.textContent : ""].filter(Boolean).join(", "));
    }
    return parts;
  };

  const dialog = document.getElementById("rows");
  const open = (from) => {
    const filter = data.filters[Number(from.dataset.f)];
    const rows = select(filter);
    const body = document.getElementById("rows-body");
    document.getElementById("rows-title").textContent = from.textContent;
    body.replaceChildren();
    for (const text of where(from)) body.append(make("p", text, { class: "where" }));
    if (from.title) body.append(make("p", from.title));
    body.append(make("p", `From ${rows.length} outcomes. ${words(filter)}.`));
    const actions = filter.action ? filter.action.length : 0;
    if (actions > 2) {
      body.append(make("p", "A policy takes one of these actions for each question, chosen on other questions; a mean of"
        + " several actions takes them all. Here is what each action came to."));
    }
    if (rows.length) body.append(make("h3", "Means"), summary(rows), make("h3", "Outcomes"), listing(rows));
    dialog.showModal();
    dialog.scrollTop = 0;
  };
  for (const each of document.querySelectorAll(".v")) {
    each.setAttribute("role", "button");
    each.setAttribute("tabindex", "0");
  }
  document.addEventListener("click", (event) => {
    const from = event.target.closest("[data-f]");
    if (from) open(from);
    else if (event.target === dialog) dialog.close();
  });
  document.addEventListener("keydown", (event) => {
    const from = event.target.closest("[data-f]");
    if (from && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      open(from);
    }
  });
})();
