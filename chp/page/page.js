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

const rate = n => number.format(n < 10 ? Math.round(n * 10) / 10 : Math.round(n));

// fill makes the rows of a table from arrays of cells: a text, or [text, class].
function fill(id, rows, empty) {
  const body = $(id).tBodies[0];
  body.replaceChildren(...rows.map(cells => element("tr", {}, ...cells.map(c => {
    const [text, className] = Array.isArray(c) ? c : [c, ""];
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
  history.replaceState(null, "", "#" + view + (view === "keys" && keys.chosen?.startsWith("/") ? encodeURI(keys.chosen) : ""));
}
for (const b of document.querySelectorAll("nav button")) b.addEventListener("click", () => show(b.dataset.view));
document.querySelector("nav").addEventListener("keydown", e => {
  const step = {ArrowRight: 1, ArrowLeft: -1}[e.key];
  if (!step) return;
  const all = [...document.querySelectorAll("nav button")];
  const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
  next.focus();
  next.click();
});

// The status, each second.

let status = null, last = null, points = [];
const metric = (text, name) => Number((text.match(new RegExp("^" + name + " (\\S+)$", "m")) ?? [0, NaN])[1]);

async function look() {
  try {
    const [one, all] = await Promise.all([fetch("status"), fetch("metrics", {headers: {Accept: "text/plain"}})]);
    if (!one.ok) throw new Error((await one.text()).trim() || one.statusText);
    status = await one.json();
    const text = await all.text(), now = performance.now();
    const updates = metric(text, "chp_updates_total");
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
  const s = status;
  $("endpoint").textContent = s.endpoint;
  $("version").textContent = s.version ?? "";
  $("state").textContent = s.state;
  $("state").className = "badge " + stateClass(s.state);
  document.title = s.endpoint.replace("tcp://", "") + " · clustermap";
  const refused = Object.entries(s.refused).filter(([, n]) => n > 0);
  const figures = [
    ["Updates a second", points.length ? rate(points.at(-1)) : "…"], ["Keys", number.format(s.keys)], ["Map", bytes(s.map_bytes)],
    ["Clients", number.format(s.clients)], ["Memory", bytes(s.memory_bytes)], ["Running for", duration(s.uptime_seconds)],
  ];
  const leases = metric(metrics, "chp_leases");
  if (leases > 0) figures.push(["Leases", number.format(leases)]);
  $("figures").replaceChildren(...figures.map(([name, value]) => element("div", {}, element("dt", {textContent: name}), element("dd", {textContent: value}))));
  const rows = [[[s.endpoint, "mono"], s.state, String(s.epoch), [s.sequence, "mono"], "", s.takes_over ? "becomes active when a client asks" : ""]];
  if (s.peer) {
    const note = s.peer_error || (s.in_sync === true ? "in sync" : "");
    rows.push([[s.peer, "mono"], s.state === "active" ? (s.lag >= 0 ? "follows" : "does not follow") : "the other server", "", "", s.lag === null || s.lag < 0 ? "" : number.format(s.lag), note]);
  }
  for (const n of s.nodes ?? []) rows.push([[n.endpoint ?? String(n.node), "mono"], n.state, String(n.term), [n.sequence, "mono"], n.lag == null ? "" : number.format(n.lag), ""]);
  fill("servers", rows, "");
  fill("refused", refused.map(([why, n]) => [why.replaceAll("_", " "), [number.format(n), "number"]]), "none");
  chart();
}

function chart() {
  const width = 600, height = 120, most = Math.max(10, ...points);
  const x = i => width - (points.length - 1 - i) * width / (seconds - 1), y = v => height - 4 - v / most * (height - 10);
  const curve = points.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ");
  const svg = (name, attributes) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    return e;
  };
  $("chart").replaceChildren(...points.length < 2 ? [] : [
    svg("polygon", {class: "area", points: `${x(0).toFixed(1)},${height} ${curve} ${width},${height}`}), svg("polyline", {class: "curve", points: curve}),
  ]);
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
          [number.format(c.lag), "number"], [bytes(c.queue_bytes), "number"], [per(c.sent, old?.sent), "number"], [per(c.received, old?.received), "number"], duration((Date.now() - Date.parse(c.since)) / 1000),
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
const readable = f => f.text ?? "(" + f.bytes.length + " bytes) " + [...f.bytes.slice(0, 24)].map(b => b.toString(16).padStart(2, "0")).join(" ") + (f.bytes.length > 24 ? " …" : "");

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

// stream reads server-sent events: it calls each with the kind, the line and the id. It
// returns why it has ended, or "".
async function stream(url, signal, each) {
  const answer = await ask(url, {signal, cache: "no-store"});
  if (!answer.ok) return problem(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", kind = "", data = "", id = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return "";
    const all = (rest + value).split("\n");
    rest = all.pop();
    for (const l of all) {
      if (l.startsWith("event: ")) kind = l.slice(7);
      else if (l.startsWith("data: ")) data = l.slice(6);
      else if (l.startsWith("id: ")) id = l.slice(4);
      else if (l === "") {
        if (kind) each(kind, data ? JSON.parse(data) : {}, id);
        kind = data = "";
      }
    }
  }
}

const keys = {begun: false, all: new Map(), prefix: "", stop: null, chosen: null, shown: "", said: ["", ""], open: new Set(), buttons: new Map(), grown: true, fresh: new Set(), due: false, held: false};

// openPrefix watches a subtree, again and again until another one is opened.
async function openPrefix() {
  keys.begun = true;
  keys.stop?.abort();
  const stop = keys.stop = new AbortController();
  keys.prefix = $("prefix").value;
  if (keys.prefix && !keys.prefix.endsWith("/")) $("prefix").value = keys.prefix += "/";
  $("tree").replaceChildren(element("p", {className: "dim", textContent: "…"}));
  while (!stop.signal.aborted) {
    let why = "";
    try {
      let synced = false;
      why = await stream(path("/v1/watch", utf8.encode(keys.prefix)), stop.signal, (kind, line) => {
        if (kind === "reset") {
          keys.all.clear();
          keys.grown = true;
        }
        if (kind === "set") {
          const key = field(line, "key"), name = readable(key);
          if (!keys.all.has(name) && keys.all.size === mostKeys) {
            if (!synced) {
              note("The first " + number.format(mostKeys) + " keys, as they were: open a longer prefix to see more, and changes.");
              stop.abort();
            }
            return;
          }
          keys.grown ||= !keys.all.has(name);
          keys.all.set(name, {key, value: field(line, "value"), line, at: Date.now()});
          if (synced) keys.fresh.add(name);
        }
        if (kind === "del") keys.grown = keys.all.delete(readable(field(line, "key"))) || keys.grown;
        if (kind === "synced") synced = true;
        if (synced) note(number.format(keys.all.size) + (keys.all.size === 1 ? " key" : " keys") + ", as they change");
        redraw();
      });
    } catch (error) {
      why = error.message;
    }
    if (stop.signal.aborted) break;
    note(why ? why + " – again in a moment" : "again in a moment");
    if (why) $("tree").replaceChildren();
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
    if (keys.grown) drawTree();
    for (const name of keys.fresh) {
      const b = keys.buttons.get(name);
      if (!b) continue;
      b.lastChild.textContent = peek(name);
      for (const a of b.getAnimations()) a.cancel();
      b.classList.add("fresh");
    }
    keys.fresh.clear();
    if (keys.chosen && !editing() && keys.shown !== version(keys.chosen)) void detail(keys.chosen);
  }, 200);
}
document.addEventListener("pointerdown", () => { keys.held = true; });
for (const end of ["pointerup", "pointercancel"]) {
  document.addEventListener(end, () => setTimeout(() => { // after the click
    keys.held = false;
    redraw();
  }));
}
const peek = name => readable(keys.all.get(name).value).slice(0, 80);
const version = name => name + " " + (keys.all.get(name)?.line.seq ?? "deleted");

function drawTree() {
  keys.grown = false;
  keys.buttons.clear();
  const root = {children: new Map(), names: [], count: 0};
  for (const name of [...keys.all.keys()].sort()) {
    let at = root, below = "";
    const parts = name.slice(keys.prefix.length).split("/");
    root.count++;
    for (const part of parts.slice(0, -1)) {
      below += part + "/";
      if (!at.children.has(part)) at.children.set(part, {children: new Map(), names: [], count: 0, path: below});
      at = at.children.get(part);
      at.count++;
    }
    at.names.push([parts.at(-1), name]);
  }
  const draw = node => {
    const all = [];
    for (const [part, child] of node.children) {
      const d = element("details", {open: keys.open.has(child.path) || root.count < 40},
        element("summary", {}, (part || "(empty)") + "/ ", element("span", {className: "dim", textContent: number.format(child.count)})));
      const grow = () => { if (d.open && d.childElementCount === 1) d.append(...draw(child)); };
      d.addEventListener("toggle", () => {
        if (d.open) keys.open.add(child.path); else keys.open.delete(child.path);
        grow();
      });
      grow();
      all.push(d);
    }
    for (const [part, name] of node.names) {
      const b = element("button", {className: "key mono", type: "button", title: name},
        element("span", {className: "name", textContent: part || "(empty)"}), element("span", {className: "peek", textContent: peek(name)}));
      keys.buttons.set(name, b);
      b.setAttribute("role", "treeitem");
      b.setAttribute("aria-selected", name === keys.chosen);
      b.addEventListener("click", () => choose(name));
      all.push(b);
    }
    return all;
  };
  const focused = document.activeElement?.classList.contains("key") ? document.activeElement.title : null;
  const scrolled = $("tree").scrollTop;
  $("tree").replaceChildren(...draw(root));
  $("tree").scrollTop = scrolled;
  if (focused !== null) [...$("tree").querySelectorAll(".key")].find(b => b.title === focused)?.focus();
  if (root.count === 0) $("tree").append(element("p", {className: "dim", textContent: "No keys."}));
}

const editing = () => $("detail").contains(document.activeElement) && document.activeElement.tagName === "TEXTAREA";

function choose(name) {
  keys.chosen = name;
  keys.said = ["", ""];
  address();
  for (const b of $("tree").querySelectorAll(".key")) b.setAttribute("aria-selected", b.title === name);
  void detail(name);
}

async function detail(name) {
  const k = keys.all.get(name), shown = keys.shown = version(name);
  const outcome = element("p", {className: "dim", textContent: keys.said[0] === name ? keys.said[1] : ""});
  outcome.setAttribute("role", "status");
  if (!k) {
    $("detail").replaceChildren(element("h2", {className: "mono", textContent: name}), element("p", {className: "dim", textContent: "It is deleted."}));
    return;
  }
  const l = k.line, facts = [["Sequence", l.seq], ["Size", bytes(k.value.bytes.length)]];
  if (l.ttl !== undefined) facts.push(["Time to live", duration(Math.max(0, l.ttl - (Date.now() - k.at) / 1000)) + " of " + l.ttl + " s"]);
  if (l.time) facts.push(["Set", new Date(l.time).toLocaleString() + (l.by ? " by " + l.by : "")]);
  for (const [n, v] of Object.entries(l.properties ?? {})) facts.push([n, typeof v === "string" ? v : JSON.stringify(v)]);
  const parts = [element("h2", {className: "mono", textContent: name}), element("dl", {}, ...facts.flatMap(([n, v]) => [element("dt", {textContent: n}), element("dd", {textContent: v})]))];
  const writable = door === "write" && name.startsWith("/");
  // It is made only if nobody else was faster.
  const change = async (method, body, done) => {
    const answer = await ask(path("/v1/kv", k.key.bytes), {method, body, headers: {"If-Match": `"${l.seq}"`}}).catch(e => ({ok: false, statusText: e.message, json: async () => ({})}));
    keys.said = [name, answer.ok ? done : answer.status === 412 ? "Nothing is changed: somebody else was faster." : "Nothing is changed: " + await problem(answer)];
    outcome.textContent = keys.said[1];
    document.activeElement?.blur();
    redraw();
  };
  if (writable && k.value.text !== null) {
    const area = element("textarea", {value: k.value.text, spellcheck: false});
    area.setAttribute("aria-label", "Value");
    const save = element("button", {className: "main", textContent: "Save", type: "button"});
    save.addEventListener("click", () => change("PUT", area.value, "It is saved."));
    parts.push(area, element("div", {className: "actions"}, save));
  } else {
    parts.push(element("pre", {textContent: readable(k.value)}));
  }
  if (writable) {
    const remove = element("button", {className: "danger", textContent: "Delete", type: "button"});
    remove.addEventListener("click", () => {
      if (remove.dataset.sure) return void change("DELETE", undefined, "It is deleted.");
      remove.dataset.sure = "1";
      remove.textContent = "Delete it, really";
      setTimeout(() => { remove.dataset.sure = ""; remove.textContent = "Delete"; }, 3000);
    });
    (parts.at(-1).className === "actions" ? parts.at(-1) : parts[parts.push(element("div", {className: "actions"})) - 1]).append(remove);
  }
  parts.push(outcome);
  const versions = element("div");
  parts.push(versions);
  $("detail").replaceChildren(...parts);
  if (!name.startsWith("/")) return;
  const answer = await ask(path("/v1/kv", k.key.bytes) + "?history").catch(() => null);
  if (!answer?.ok || keys.shown !== shown) return;
  const lines = (await answer.text()).trim().split("\n").filter(Boolean).map(t => JSON.parse(t)).reverse();
  if (lines.length < 2) return;
  versions.append(element("h2", {textContent: "History"}));
  const body = element("tbody");
  for (const v of lines) {
    const value = field(v, "value"), gone = v.value === undefined && v.value_base64 === undefined, row = element("tr", {}, element("td", {className: "mono", textContent: v.seq}), element("td", {textContent: v.time ? new Date(v.time).toLocaleString() : ""}),
      element("td", {className: "mono value", textContent: gone ? v.cause : readable(value), title: gone ? "" : readable(value)}));
    if (writable && !gone && v.seq !== l.seq) {
      const revert = element("button", {textContent: "Revert", type: "button"});
      revert.addEventListener("click", () => change("PUT", value.bytes, "It has the value of " + v.seq + " again."));
      row.append(element("td", {}, revert));
    }
    body.append(row);
  }
  versions.append(element("div", {className: "wide"}, element("table", {}, body)));
}

$("browse").addEventListener("submit", e => {
  e.preventDefault();
  keys.chosen = null;
  $("detail").replaceChildren(element("p", {className: "dim", textContent: "Choose a key."}));
  void openPrefix();
});
$("token").addEventListener("change", () => {
  sessionStorage.setItem("token", $("token").value.trim());
  void openPrefix();
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
        if ($("pause").checked) return;
        changes.all.unshift([new Date().toLocaleTimeString(), kind === "set" ? "set" : line.cause ? "deleted: " + line.cause : "deleted", [readable(field(line, "key")), "mono value"],
          [kind === "set" ? readable(field(line, "value")).slice(0, 200) : "", "mono value"], [line.seq, "mono"]]);
        if (changes.all.length > 2 * mostChanges) changes.all.length = mostChanges;
        drawChanges();
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
const [, first, key] = location.hash.match(/^#([a-z]*)(\/.*)?$/) ?? [];
if (first === "keys" && key) {
  try {
    keys.chosen = decodeURI(key);
  } catch { /* it is malformed */ }
}
show(["overview", "clients", "keys", "changes"].includes(first) ? first : "overview");
void look();
