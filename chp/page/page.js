// The page of a server: it asks for the status, the metrics and the clients at intervals, and
// reads the map over /v1/. Nothing that comes from the map or a client is ever used as HTML.

const $ = id => document.getElementById(id);
const door = document.querySelector("meta[name=door]").content; // "", "read" or "write"
const mostKeys = 5000, mostChanges = 200, seconds = 300;
const number = new Intl.NumberFormat("en");

function element(name, properties = {}, ...children) {
  const e = Object.assign(document.createElement(name), properties);
  e.append(...children);
  return e;
}

function bytes(n) {
  if (n < 0) return "unknown";
  for (const unit of ["bytes", "KiB", "MiB", "GiB"]) {
    if (n < 1024 || unit === "GiB") return (unit === "bytes" || n >= 100 ? Math.round(n) : n.toFixed(1)) + " " + unit;
    n /= 1024;
  }
}

function duration(s) {
  if (s < 60) return Math.floor(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}

// visible escapes what could be taken for something else: characters that are not seen, and those that change the
// order of others. The commands do the same. The characters in keep stay.
const visible = (text, keep = "") => text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
  c => keep.includes(c) ? c : "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

const rate = n => number.format(n < 10 ? Math.round(n * 10) / 10 : Math.round(n));

// fill makes the rows of a table from arrays of cells: a text, or [text, class].
function fill(id, rows, empty) {
  const body = $(id).tBodies[0];
  body.replaceChildren(...rows.map(cells => element("tr", {}, ...cells.map(c => {
    const [text, className] = Array.isArray(c) ? [visible(c[0]), c[1]] : [visible(c), ""];
    return element("td", {className, textContent: text, title: className.includes("value") ? text : ""});
  }))));
  if (rows.length === 0) {
    body.append(element("tr", {}, element("td", {className: "none", colSpan: 20, textContent: empty})));
  }
}

// Views.

let view = "";
function show(name) {
  view = name;
  for (const b of document.querySelectorAll("nav button")) b.setAttribute("aria-selected", b.dataset.view === name);
  for (const s of document.querySelectorAll("main section")) s.hidden = s.id !== name;
  address();
  if (name === "keys" && door && !keys.begun) openPrefix();
  if (name === "changes" && door) follow();
  if (name === "clients") void listClients();
}

// address makes the address lead to what is shown: #keys/a/b is the key /a/b.
function address() {
  history.replaceState(null, "", "#" + view + (view === "keys" && keys.chosen !== null && addressable(keys.chosen) ? encodeURI(keys.chosen) : ""));
}
for (const b of document.querySelectorAll("nav button")) b.addEventListener("click", () => show(b.dataset.view));
document.querySelector("nav").addEventListener("keydown", e => {
  const step = {ArrowRight: 1, ArrowLeft: -1}[e.key];
  if (!step) return;
  const all = [...document.querySelectorAll("nav button:not([hidden])")];
  const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
  next.focus();
  next.click();
});

// The status, each second.

let status = null, last = null, first = null, points = [];
const metric = (text, name) => Number((text.match(new RegExp("^" + name + " (\\S+)$", "m")) ?? [0, NaN])[1]);

async function look() {
  try {
    const [one, all] = await Promise.all([fetch("status"), fetch("metrics", {headers: {Accept: "text/plain"}})]);
    if (!one.ok) throw new Error((await one.text()).trim() || one.statusText);
    status = await one.json();
    const text = await all.text(), now = performance.now();
    // A node publishes what others have accepted, too. The sequences are above 2^53; what they grow by is not.
    const updates = status.cluster ? Number(BigInt(status.sequence) - (first ??= BigInt(status.sequence))) : metric(text, "chp_updates_total");
    if (last && now > last.now && updates >= last.updates) points.push((updates - last.updates) * 1000 / (now - last.now));
    last = {now, updates};
    points = points.slice(-seconds);
    trouble("");
    overview(text);
  } catch (error) {
    trouble("The server cannot be asked: " + error.message);
    $("state").textContent = "unreachable";
    $("state").className = "badge bad";
    last = null;
  }
  setTimeout(look, document.hidden ? 5000 : 1000);
}

function trouble(text) {
  $("trouble").hidden = text === "";
  $("trouble").textContent = text;
}

const stateClass = state => ({active: "good", passive: "", waiting: "wait", stopped: "bad"})[state] ?? "";

function overview(metrics) {
  const s = status, c = s.cluster, state = c ? c.state : s.state;
  $("endpoint").textContent = s.endpoint;
  $("version").textContent = s.version ?? "";
  $("state").textContent = state;
  $("state").className = "badge " + (c ? (c.leader ? "good" : "wait") : stateClass(state));
  document.title = s.endpoint.replace("tcp://", "") + " · clustermap";
  const refused = Object.entries(s.refused).filter(([, n]) => n > 0);
  const figures = [
    ["Updates a second", points.length ? rate(points.at(-1)) : "…"], ["Keys", number.format(s.keys)], ["Map", bytes(s.map_bytes)],
    ["Clients", number.format(s.clients)], ["Memory", bytes(s.memory_bytes)], ["Running for", duration(s.uptime_seconds)],
  ];
  if (keys.history !== (keys.history = metric(metrics, "chp_history_bytes") > 0)) redraw();
  const leases = metric(metrics, "chp_leases");
  if (leases > 0) figures.push(["Leases", number.format(leases)]);
  $("figures").replaceChildren(...figures.map(([name, value]) => element("div", {}, element("dt", {textContent: name}), element("dd", {textContent: value}))));
  const rows = [[[s.endpoint, "mono"], state, String(s.epoch), [s.sequence, "mono"], "", s.takes_over ? "becomes active when a client asks" : ""]];
  if (s.peer) {
    const note = s.peer_error || (s.in_sync === true ? "in sync" : "");
    rows.push([[s.peer, "mono"], s.state === "active" ? (s.lag >= 0 ? "follows" : "does not follow") : "the other server", "", "", s.lag === null || s.lag < 0 ? "" : number.format(s.lag), note]);
  }
  for (const m of c?.members ?? []) {
    if (m.node === c.node) continue;
    const role = m.node === c.leader ? "leader" : m.learner ? "learner" : "follower";
    rows.push([[m.endpoint, "mono"], role, m.node === c.leader ? String(c.term) : "", "", m.lag < 0 ? "" : number.format(m.lag), c.leader === c.node && !m.active ? "does not answer" : ""]);
  }
  fill("servers", rows, "");
  fill("refused", refused.map(([why, n]) => [why.replaceAll("_", " "), [number.format(n), "number"]]), "none");
  chart();
}

function chart() {
  const width = 600, height = 120, most = Math.max(10, ...points);
  const span = Math.max(60, points.length); // seconds, if each answer came in time
  const x = i => width - (points.length - 1 - i) * width / (span - 1), y = v => height - 4 - v / most * (height - 10);
  const curve = points.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ");
  const svg = (name, attributes) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    return e;
  };
  $("chart").replaceChildren(...points.length < 2 ? [] : [
    svg("polygon", {class: "area", points: `${x(0).toFixed(1)},${height} ${curve} ${width},${height}`}), svg("polyline", {class: "curve", points: curve}),
  ]);
  $("chart-span").textContent = span <= 60 ? "last minute" : "last " + Math.round(span / 60) + " minutes";
  $("chart-most").textContent = "at most " + rate(Math.max(0, ...points));
}

// The clients, each two seconds while they are shown.

let before = new Map(), listing = false;
async function listClients() {
  if (listing) return;
  listing = true;
  while (view === "clients") {
    try {
      const answer = await fetch("clients");
      if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
      const {clients, more} = await answer.json();
      const now = performance.now(), next = new Map();
      const rows = clients.map(c => {
        const id = c.remote + " " + c.since, old = before.get(id);
        next.set(id, {now, sent: c.sent, received: c.received});
        const per = (n, m) => old && n >= m && m >= 0 ? rate((n - m) * 1000 / (now - old.now)) : "";
        return {c, cells: [
          c.name || [c.id ? c.id.slice(0, 8) : "anonymous", "mono"], [c.remote, "mono"], [(c.subtrees.map(t => t || "everything").join(" ") || "nothing") + (c.more_subtrees ? " +" + c.more_subtrees : ""), "mono value"],
          [number.format(c.lag), "number"], [bytes(c.queue_bytes), "number"], [per(c.sent, old?.sent), "number"], [per(c.received, old?.received), "number"], duration(Math.max(0, Date.now() - Date.parse(c.since)) / 1000),
        ]};
      });
      before = next;
      rows.sort((a, b) => b.c.queue_bytes - a.c.queue_bytes);
      fill("clients-table", rows.map(r => r.cells), "nobody is connected");
      $("clients-note").textContent = number.format(clients.length + more) + (clients.length + more === 1 ? " client" : " clients") + ", those first for which most waits" + (more ? "; " + number.format(more) + " are not shown" : "");
    } catch (error) {
      $("clients-note").textContent = "The clients cannot be listed: " + error.message;
    }
    await new Promise(done => setTimeout(done, 2000));
  }
  listing = false;
}

// The map, over /v1/.

const utf8 = new TextEncoder(), text8 = new TextDecoder("utf-8", {fatal: true});
const fromBase64 = s => Uint8Array.from(atob(s), c => c.charCodeAt(0));

// A field of a line is text, or in base64 if it is not UTF-8.
function field(line, name) {
  if (line[name] !== undefined) return {text: line[name], bytes: utf8.encode(line[name])};
  if (line[name + "_base64"] === undefined) return {text: "", bytes: new Uint8Array()};
  const b = fromBase64(line[name + "_base64"]);
  return {text: null, bytes: b};
}
const readable = (f, keep = "") => f.text !== null ? visible(f.text, keep) : "(" + f.bytes.length + " bytes) " + [...f.bytes.slice(0, 24)].map(b => b.toString(16).padStart(2, "0")).join(" ") + (f.bytes.length > 24 ? " …" : "");

// The path of a key: slashes behind the first one are encoded too, for a browser changes /../ in a path.
const encode = b => [...b].map(c => /[A-Za-z0-9_~-]/.test(String.fromCharCode(c)) ? String.fromCharCode(c) : "%" + c.toString(16).padStart(2, "0").toUpperCase()).join("");
const path = (root, b) => root + (b.length === 0 ? "" : "/" + encode(b.slice(1)));

function ask(url, options = {}) {
  const token = sessionStorage.getItem("token");
  return fetch(url, {...options, headers: {...options.headers, ...(token ? {Authorization: "Bearer " + token} : {})}});
}

async function problem(answer) {
  if (answer.status === 401) $("token-label").hidden = false;
  const p = await answer.json().catch(() => ({}));
  return (p.title ?? answer.statusText) + (p.detail ? ": " + p.detail : "");
}

// stream reads server-sent events: it calls answered with the status of the answer, and each with the kind and the line.
// It returns why it has ended, or "".
async function stream(url, signal, each, answered = () => {}) {
  const answer = await ask(url, {signal, cache: "no-store"});
  answered(answer.status);
  if (!answer.ok) return problem(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", kind = "", data = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return "";
    const all = (rest + value).split("\n");
    rest = all.pop();
    for (const l of all) {
      if (l.startsWith("event: ")) kind = l.slice(7);
      else if (l.startsWith("data: ")) data = l.slice(6);
      else if (l === "") {
        if (kind) each(kind, data ? JSON.parse(data) : {});
        kind = data = "";
      }
    }
  }
}

// Keys have their text as their id, or a NUL, which no text has, and their bytes in base64.
const keys = {
  begun: false, prefix: "", stop: null, synced: false, partial: false, all: new Map(), // by id
  chosen: null, may: false, said: "", draft: null, shown: "", // of the chosen key
  folders: new Map(), buttons: new Map(), grown: true, fresh: new Set(), due: false, held: false, // the tree
  history: false, // the server keeps some
};
const idOf = line => line.key ?? "\0" + line.key_base64;
const labelOf = id => id.startsWith("\0") ? readable(field({key_base64: id.slice(1)}, "key")) : visible(id);
const addressable = id => id.startsWith("/"); // over /v1/kv

// mayWrite asks whether the visitor may write a key or, if it ends with a slash, all keys that begin with it.
async function mayWrite(text) {
  if (door !== "write") return false;
  const answer = await ask(path("/v1/kv", utf8.encode(text)), {method: "OPTIONS"}).catch(() => null);
  return Boolean(answer?.ok && answer.headers.get("Allow")?.split(", ").includes("PUT"));
}

// openPrefix watches a subtree, again and again until another one is opened or it is refused.
async function openPrefix() {
  keys.begun = true;
  keys.stop?.abort();
  const stop = keys.stop = new AbortController();
  keys.prefix = $("prefix").value = $("prefix").value.replace(/^([^/])/, "/$1").replace(/([^/])$/, "$1/");
  keys.all.clear();
  keys.synced = keys.partial = false;
  keys.grown = true;
  $("tree").replaceChildren(element("p", {className: "dim", textContent: "…"}));
  $("new").hidden = true;
  while (!stop.signal.aborted) {
    let why = "", refused = false;
    try {
      keys.synced = false;
      why = await stream(path("/v1/watch", utf8.encode(keys.prefix)), stop.signal, (kind, line) => {
        const id = idOf(line);
        if (kind === "reset") {
          keys.all.clear();
          keys.grown = true;
        }
        if (kind === "set") {
          if (!keys.all.has(id) && keys.all.size === mostKeys) {
            keys.partial = true;
            if (!keys.synced) {
              note("The first " + number.format(mostKeys) + " keys, as they were: open a longer prefix to see more, and changes.");
              stop.abort();
            }
            return;
          }
          keys.grown ||= !keys.all.has(id);
          keys.all.set(id, {key: field(line, "key"), value: field(line, "value"), line, at: Date.now()});
          if (keys.synced) keys.fresh.add(id);
        }
        if (kind === "del") keys.grown = keys.all.delete(id) || keys.grown;
        if (kind === "synced") keys.synced = true;
        if (keys.synced) note(number.format(keys.all.size) + (keys.all.size === 1 ? " key" : " keys") + ", as they change");
        redraw();
      }, status => {
        refused = status === 401 || status === 403;
        if (status === 200) void mayWrite(keys.prefix).then(may => { if (keys.stop === stop) $("new").hidden = !may; });
      });
    } catch (error) {
      why = error.message;
    }
    if (stop.signal.aborted) break;
    if (why) $("tree").replaceChildren();
    note(refused ? why : why ? why + " – again in a moment" : "again in a moment");
    if (refused) {
      keys.all.clear();
      break;
    }
    await new Promise(done => setTimeout(done, 2000));
  }
  redraw();
}
const note = text => { $("keys-note").textContent = text; };

// redraw shows what has changed, but not while a button is held down, which it might replace.
function redraw() {
  if (keys.due || keys.held) return;
  keys.due = true;
  setTimeout(() => {
    keys.due = false;
    if (keys.held) return;
    if (keys.grown && (keys.all.size > 0 || keys.synced)) drawTree();
    for (const id of keys.fresh) {
      const b = keys.buttons.get(id);
      if (!b) continue;
      b.lastChild.textContent = peek(id);
      for (const a of b.getAnimations()) a.cancel();
      b.classList.add("fresh");
    }
    keys.fresh.clear();
    if (keys.chosen !== null && !editing() && keys.shown !== version()) void detail();
  }, 200);
}
document.addEventListener("pointerdown", () => { keys.held = true; });
for (const end of ["pointerup", "pointercancel"]) {
  document.addEventListener(end, () => setTimeout(() => { // after the click
    keys.held = false;
    redraw();
  }));
}
const peek = id => readable(keys.all.get(id).value).slice(0, 80);

// version is what the detail depends on.
function version() {
  const known = keys.all.get(keys.chosen)?.line.seq ?? (keys.synced || keys.partial ? "none" : "");
  return [known, keys.may, keys.history, keys.chosen].join(" ");
}

function drawTree() {
  keys.grown = false;
  keys.buttons.clear();
  const root = {children: new Map(), ids: [], count: 0};
  for (const id of [...keys.all.keys()].sort()) {
    let at = root, below = keys.prefix;
    const parts = id.startsWith("\0") ? [labelOf(id)] : id.slice(keys.prefix.length).split("/");
    root.count++;
    for (const part of parts.slice(0, -1)) {
      below += part + "/";
      if (!at.children.has(part)) at.children.set(part, {children: new Map(), ids: [], count: 0, path: below});
      at = at.children.get(part);
      at.count++;
    }
    at.ids.push([parts.at(-1), id]);
  }
  const draw = node => {
    const all = [];
    for (const [part, child] of node.children) {
      const d = element("details", {open: keys.folders.get(child.path) ?? root.count < 40},
        element("summary", {className: "mono"}, (visible(part) || "(empty)") + "/ ", element("span", {className: "dim", textContent: number.format(child.count)})));
      const grow = () => { if (d.open && d.childElementCount === 1) d.append(...draw(child)); };
      d.addEventListener("toggle", () => {
        keys.folders.set(child.path, d.open);
        grow();
      });
      grow();
      all.push(d);
    }
    for (const [part, id] of node.ids) {
      const b = element("button", {className: "key mono", type: "button", title: labelOf(id)},
        element("span", {className: "name", textContent: visible(part) || "(empty)"}), element("span", {className: "peek", textContent: peek(id)}));
      keys.buttons.set(id, b);
      b.setAttribute("role", "treeitem");
      b.setAttribute("aria-selected", id === keys.chosen);
      b.addEventListener("click", () => choose(id));
      all.push(b);
    }
    return all;
  };
  const focused = [...keys.buttons].find(([, b]) => b === document.activeElement)?.[0];
  const scrolled = $("tree").scrollTop;
  $("tree").replaceChildren(...draw(root));
  $("tree").scrollTop = scrolled;
  if (focused !== undefined) keys.buttons.get(focused)?.focus();
  if (root.count === 0) $("tree").append(element("p", {className: "dim", textContent: "No keys."}));
}

const editing = () => $("detail").contains(document.activeElement) && document.activeElement.matches("textarea, input");

function choose(id) {
  Object.assign(keys, {chosen: id, may: false, said: "", draft: null});
  address();
  for (const [other, b] of keys.buttons) b.setAttribute("aria-selected", other === id);
  void detail();
  if (addressable(id)) {
    void mayWrite(id).then(may => {
      if (keys.chosen !== id) return;
      keys.may = may;
      redraw();
    });
  }
}

// reach chooses the key that the address names.
function reach(id) {
  let below = "";
  for (const part of id.split("/").slice(0, -1)) keys.folders.set(below += part + "/", true);
  keys.grown = true;
  if (keys.begun && !id.startsWith(keys.prefix)) {
    $("prefix").value = "/";
    void openPrefix();
  }
  choose(id);
}

// change makes an update of the chosen key, under a condition, and says what has become of it.
async function change(method, k, query, body, done) {
  const id = keys.chosen;
  const answer = await ask(path("/v1/kv", k.key.bytes) + query, {method, body, headers: {"If-Match": `"${k.line.seq}"`}}).catch(e => ({ok: false, statusText: e.message, json: async () => ({})}));
  const said = answer.ok ? done : answer.status === 412 ? "Nothing is changed: somebody else was faster." : "Nothing is changed: " + await problem(answer);
  if (keys.chosen !== id) return;
  if (answer.ok) keys.draft = null;
  keys.said = said;
  keys.shown = "";
  document.activeElement?.blur();
  redraw();
}

const heading = id => element("h2", {className: "mono", textContent: labelOf(id)});
const said = text => {
  const p = element("p", {className: "dim", id: "said", textContent: text});
  p.setAttribute("role", "status");
  return p;
};
const actions = (...all) => element("div", {className: "actions"}, ...all);

function button(text, className, act) {
  const b = element("button", {textContent: text, className, type: "button"});
  b.addEventListener("click", act);
  return b;
}

// detail shows the chosen key.
async function detail() {
  const id = keys.chosen, k = keys.all.get(id), shown = keys.shown = version();
  if (!k) {
    $("detail").replaceChildren(heading(id), said(keys.said), element("p", {className: "dim", textContent:
      keys.partial ? "It is not among the keys that are shown: open a longer prefix." : keys.synced ? "It is not in the map." : "…"}));
    return;
  }
  const l = k.line, text = k.value.text, facts = [["Sequence", l.seq], ["Size", bytes(k.value.bytes.length)]];
  if (l.ttl !== undefined) facts.push(["Expires", new Date(k.at + l.ttl * 1000).toLocaleString()]);
  if (l.lease) facts.push(["Lease", l.lease]);
  if (l.time) facts.push(["Set", new Date(l.time).toLocaleString() + (l.by ? " by " + l.by : "")]);
  for (const [n, v] of Object.entries(l.properties ?? {})) facts.push([n, typeof v === "string" ? v : JSON.stringify(v)]);
  const parts = [heading(id), element("dl", {}, ...facts.flatMap(([n, v]) => [element("dt", {textContent: visible(n)}), element("dd", {textContent: visible(v)})]))];
  // What is saved or reverted keeps its lease, or the time that it has left.
  const query = () => l.lease ? "?lease=" + encodeURIComponent(l.lease) : l.ttl > 0 ? "?ttl=" + Math.max(.001, l.ttl - (Date.now() - k.at) / 1000).toFixed(3) : "";
  const value = element("pre", {id: "value", textContent: readable(k.value, "\n\t")});
  const area = element("textarea", {value: keys.draft ?? text ?? "", spellcheck: false, rows: Math.min(16, Math.max(3, (text ?? "").split("\n").length + 1))});
  area.setAttribute("aria-label", "Value");
  // The area has newlines of one kind only: what it would change is not edited.
  if (keys.may && text !== null && (keys.draft !== null || area.value === text)) {
    area.addEventListener("input", () => { keys.draft = area.value; });
    if (keys.draft !== null && keys.draft !== text) parts.push(element("p", {className: "dim", textContent: "The value, which you have edited:"}), value);
    parts.push(area, actions(button("Save", "main", () => change("PUT", k, query(), area.value, "It is saved."))));
    if (keys.draft !== null) {
      parts.at(-1).append(button("Discard", "", () => {
        Object.assign(keys, {draft: null, said: ""});
        void detail();
      }));
    }
  } else {
    parts.push(value, actions());
  }
  if (keys.may) {
    const once = "Delete", twice = "Delete it, really";
    const remove = button(once, "danger", () => {
      if (remove.textContent === twice) return void change("DELETE", k, "", undefined, "It is deleted.");
      remove.textContent = twice;
      remove.focus(); // not every browser does that
    });
    remove.addEventListener("blur", () => { remove.textContent = once; });
    parts.at(-1).append(remove);
  }
  const versions = element("div", {id: "history"});
  $("detail").replaceChildren(...parts, said(keys.said), versions);
  if (!addressable(id) || !keys.history) return;
  const answer = await ask(path("/v1/kv", k.key.bytes) + "?history").catch(() => null);
  if (!answer?.ok || keys.shown !== shown) return;
  const lines = (await answer.text()).split("\n").filter(Boolean).map(t => JSON.parse(t)).reverse();
  if (lines.length < 2 || keys.shown !== shown) return;
  const body = element("tbody"), head = element("tr", {}, ...["Sequence", "Set", "Value", ...keys.may ? [""] : []].map(textContent => element("th", {textContent})));
  for (const v of lines) {
    const old = field(v, "value"), gone = v.value === undefined && v.value_base64 === undefined, what = gone ? v.cause || "deleted" : readable(old).slice(0, 200);
    const row = element("tr", {}, element("td", {className: "mono", textContent: v.seq}), element("td", {textContent: v.time ? new Date(v.time).toLocaleString() + (v.by ? " by " + visible(v.by) : "") : ""}),
      element("td", {className: gone ? "none" : "mono value", textContent: what, title: what}));
    if (keys.may) {
      row.append(element("td", {}, ...gone || v.seq === l.seq ? [] : [button("Revert", "", () => change("PUT", k, query(), old.bytes, "It has the value of " + v.seq + " again."))]));
    }
    body.append(row);
  }
  versions.append(element("h2", {textContent: "History"}), element("div", {className: "wide"}, element("table", {}, element("thead", {}, head), body)));
}

// A new key is made only if it is not there.
$("new").addEventListener("click", () => {
  Object.assign(keys, {chosen: null, may: false, said: "", draft: null, shown: ""});
  for (const b of keys.buttons.values()) b.setAttribute("aria-selected", false);
  address();
  const name = element("input", {className: "mono", value: keys.prefix || "/", spellcheck: false, autocomplete: "off"}), area = element("textarea", {spellcheck: false, rows: 3}), outcome = said("");
  name.setAttribute("aria-label", "Key");
  area.setAttribute("aria-label", "Value");
  $("detail").replaceChildren(element("h2", {textContent: "New key"}), name, area, actions(button("Create", "main", async () => {
    const id = name.value;
    if (!addressable(id)) return void (outcome.textContent = "A key begins with a slash.");
    const answer = await ask(path("/v1/kv", utf8.encode(id)), {method: "PUT", body: area.value, headers: {"If-None-Match": "*"}}).catch(e => ({ok: false, statusText: e.message, json: async () => ({})}));
    if (answer.ok) return reach(id);
    outcome.textContent = "Nothing is changed: " + (answer.status === 412 ? "the key is there already." : await problem(answer));
  })), outcome);
  name.focus();
});

$("browse").addEventListener("submit", e => {
  e.preventDefault();
  keys.chosen = null;
  address();
  $("detail").replaceChildren(element("p", {className: "dim", textContent: "Choose a key."}));
  void openPrefix();
});
$("token").addEventListener("change", () => {
  sessionStorage.setItem("token", $("token").value.trim());
  void openPrefix();
  if (keys.chosen !== null) choose(keys.chosen);
});

// Changes of the whole map, from now on.

const changes = {following: false, all: [], seen: 0, due: false};
async function follow() {
  if (changes.following) return;
  changes.following = true;
  while (view === "changes") {
    let why = "";
    const stop = new AbortController();
    const leave = setInterval(() => { if (view !== "changes") stop.abort(); }, 500);
    try {
      if (!status || BigInt(status.sequence) <= 0n) throw new Error("the server has no changes yet");
      why = await stream("/v1/watch?since=" + status.sequence, stop.signal, (kind, line) => {
        if (kind !== "set" && kind !== "del") return;
        changes.seen++;
        drawChanges();
        if ($("pause").checked) return;
        changes.all.unshift([new Date().toLocaleTimeString(), kind === "set" ? "set" : line.cause && line.cause !== "deleted" ? "deleted: " + line.cause : "deleted", [readable(field(line, "key")), "mono value"],
          [kind === "set" ? readable(field(line, "value")).slice(0, 200) : "", "mono value"], [line.seq, "mono"]]);
        if (changes.all.length > 2 * mostChanges) changes.all.length = mostChanges;
      });
    } catch (error) {
      why = error.message;
    }
    clearInterval(leave);
    if (view === "changes") {
      $("changes-note").textContent = why ? why + " – again in a moment" : "";
      await new Promise(done => setTimeout(done, 1500));
    }
  }
  changes.following = false;
}

function drawChanges() {
  if (changes.due) return;
  changes.due = true;
  setTimeout(() => {
    changes.due = false;
    fill("log", changes.all.slice(0, mostChanges), "");
    $("changes-note").textContent = number.format(changes.seen) + " since the page was opened; the last " + mostChanges + " are shown";
  }, 250);
}

fill("log", [], "Nothing has changed since this was opened.");
if (!door) for (const v of ["keys", "changes"]) document.querySelector(`nav button[data-view=${v}]`).hidden = true;

// go shows what the address names, also when somebody changes it or uses a link.
function go() {
  const [, first, key] = location.hash.match(/^#([a-z]*)(\/.*)?$/) ?? [];
  if (first === "keys" && key && door) {
    try {
      view = "keys";
      reach(decodeURI(key));
    } catch { /* it is malformed */ }
  }
  show([...document.querySelectorAll("nav button:not([hidden])")].some(b => b.dataset.view === first) ? first : "overview");
}
addEventListener("hashchange", go);
go();
void look();
