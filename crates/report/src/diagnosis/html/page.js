// The document: what was found, in the order of the terminal's screen.
const data = JSON.parse(document.getElementById("data").textContent);
const doc = data.document;
const at = id => document.getElementById(id);

// An element from its tag, attributes (`text` and `on...` are special) and children.
const el = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (key === "text") node.textContent = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
};

// Four digits are enough to compare and few enough to read.
const time = ns => {
  if (ns === 0) return "0";
  const [value, unit] = Math.abs(ns) >= 1e6 ? [ns / 1e6, "ms"] : Math.abs(ns) >= 1e3 ? [ns / 1e3, "us"] : [ns, "ns"];
  return value.toFixed(unit === "ns" || Math.abs(value) >= 1000 ? 0 : Math.abs(value) >= 100 ? 1 : 2) + " " + unit;
};
const bytes = count => count >= 1e9 ? (count / 1e9).toFixed(2) + " GB" : count >= 1e6 ? (count / 1e6).toFixed(2) + " MB"
  : count >= 1e3 ? (count / 1e3).toFixed(2) + " kB" : count + " B";
const short = value => Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(1);
const range = (low, high, text) => text(low) === text(high) ? text(high) : text(low) + " to " + text(high);
const count = (n, what) => n + " " + what + (n === 1 ? "" : "s");
const sum = values => values.reduce((a, b) => a + b, 0);
// `rank 0`, `ranks 0-3, 5`.
const rankList = ranks => {
  const parts = [];
  for (const rank of ranks) {
    const last = parts.at(-1);
    if (last && rank === last[1] + 1) last[1] = rank; else parts.push([rank, rank]);
  }
  return (ranks.length === 1 ? "rank " : "ranks ") + parts.map(([low, high]) => low === high ? low : low + "-" + high).join(", ");
};
// With a capital letter, unless the first word is the name of something.
const capital = text => /^[a-z]+ /.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
const step = doc.steps.mean_ns;

// Units whose sum is that of the values: the largest remainders are rounded up.
const addingUp = (values, unit) => {
  const exact = values.map(value => value / unit), units = exact.map(Math.floor);
  const missing = Math.round(sum(exact)) - sum(units);
  exact.map((value, index) => [value - units[index], index]).sort((a, b) => b[0] - a[0]).slice(0, missing)
    .forEach(([, index]) => { units[index] += 1; });
  return units.map(value => value * unit);
};

// A leaf's colour is that of its family, stronger or weaker.
const families = { compute: "--compute", comm: "--transfer", copy: "--copy" };
const colour = leaf => {
  const family = leaf.split(".")[0];
  if (leaf === "comm.wait") return "var(--wait)";
  const own = Object.keys(data.leaves).filter(name => name.split(".")[0] === family);
  // Gaps between queued kernels matter least.
  const share = family === "gap" ? 35 : family === "comm" ? 100 : 100 - 50 * own.indexOf(leaf) / Math.max(1, own.length - 1);
  return `color-mix(in srgb, var(${families[family] || "--host"}) ${share}%, white)`;
};

function sentence() {
  const job = doc.job, counted = doc.steps.counted, left = doc.steps.left_out.length;
  // A figure and its unit stay on one line.
  at("sentence").textContent = doc.verdict.sentence.replace(/(\d) (%|[num]?s|GB\/s)(?!\w)/g, "$1\u00a0$2");
  document.title = doc.verdict.sentence;
  const size = Math.max(job.world_size || 0, job.ranks.length);
  const steps = counted ? `${left ? counted + " of " + count(counted + left, "step") : count(counted, "step")} counted, ${time(step)} each` : null;
  const bound = { host: "mostly waiting for the CPU", data: "mostly waiting for data", copy: "mostly copying", communication: "mostly communicating",
    peer: "mostly waiting for another rank", compute: "mostly computing", failed: "failed" }[doc.verdict.bound_by];
  const missing = job.missing_ranks.length ? count(job.missing_ranks.length, "rank") + " missing" : null;
  at("facts").textContent = [job.device, size ? count(size, "rank") : null, missing, steps, bound].filter(Boolean).join(" \u00b7 ");
  at("made").textContent = `Counterpoint ${doc.version}. Times are per step of one device unless a clock is shown.`;
}

// One bar for each class of ranks, and the same as a table that adds up.
function accounts() {
  if (!data.classes.length) return;
  const card = el("div", { class: "card" });
  for (const own of data.classes) {
    const bar = el("div", { class: "bar", role: "img", "aria-label": "account of " + own.name });
    for (const [leaf, ns] of Object.entries(own.account)) {
      const share = 100 * ns / own.step_ns;
      bar.append(el("span", { style: `width:${share}%;background:${colour(leaf)}`, text: share > 9 ? leaf.replace("compute.", "") : "",
        title: `${leaf}: ${data.leaves[leaf]}; ${time(ns)} of a step, ${share.toFixed(1)} %` }));
    }
    const name = own.name + (own.count > 1 && data.classes.length > 1 ? ` (${own.count})` : "");
    card.append(el("div", { class: "class" }, el("div", { class: "name" }, el("span", { text: name }), el("span", { class: "quiet", text: time(own.step_ns) + " a step" })), bar));
  }
  if (data.further_ranks) card.append(el("p", { class: "quiet", text: count(data.further_ranks, "further rank") + " in smaller classes; the JSON holds every rank." }));
  at("accounts").append(el("h2", { text: "Where a step goes" }), card, el("div", { class: "card scroll" }, accountTable()));
}

function accountTable() {
  const least = 0.0005, classes = data.classes;
  const most = leaf => Math.max(...classes.map(own => (own.account[leaf] || 0) / own.step_ns));
  const known = Object.keys(data.leaves).filter(leaf => most(leaf) > 0).sort((a, b) => most(b) - most(a));
  const rows = known.filter(leaf => most(leaf) >= least), rest = known.filter(leaf => most(leaf) < least);
  const unit = 10 ** (step >= 1e7 ? 4 : 2), places = step >= 1e7 ? 2 : 4;
  const columns = classes.map(own => {
    const values = rows.map(leaf => own.account[leaf] || 0);
    if (rest.length) values.push(sum(rest.map(leaf => own.account[leaf] || 0)));
    return [addingUp(values, unit), addingUp(values.map(value => 1000 * value / own.step_ns), 1)];
  });
  const cells = figures => figures.flatMap(([ns, share]) => [el("td", { text: (ns / 1e6).toFixed(places) }), el("td", { text: (share / 10).toFixed(1) + " %" })]);
  const head = el("tr", {}, el("th", { class: "text", text: "leaf" }), el("th", { class: "text", text: "what it is" }),
    ...classes.map(own => el("th", { colspan: 2, text: own.name + ", ms" })));
  const body = el("tbody");
  rows.forEach((leaf, row) => body.append(el("tr", {}, el("td", { class: "text" }, el("i", { class: "dot", style: "background:" + colour(leaf) }), leaf),
    el("td", { class: "text quiet", text: data.leaves[leaf] }), ...cells(columns.map(([ns, share]) => [ns[row], share[row]])))));
  if (rest.length) body.append(el("tr", {}, el("td", { class: "text", text: "other leaves" }), el("td", { class: "text quiet", text: rest.join(", ") }),
    ...cells(columns.map(([ns, share]) => [ns[rows.length], share[rows.length]]))));
  const foot = el("tfoot", {}, el("tr", {}, el("td", { class: "text", text: "a step" }), el("td", { class: "text" }),
    ...cells(columns.map(([ns, share]) => [sum(ns), sum(share)]))));
  return el("table", {}, el("thead", {}, head), body, foot);
}

function findings(show) {
  const section = at("findings");
  section.append(el("h2", { text: doc.findings.length ? "Findings" : "No findings" }));
  doc.findings.forEach((finding, number) => {
    const cost = finding.cost_ms_per_step === null ? "" : range(finding.cost_low, finding.cost_high, short) + " ms per step"
      + (step > 1e6 * finding.cost_high ? ` (${range(finding.cost_low, finding.cost_high, ms => (1e8 * ms / step).toFixed(0))} %)` : "");
    const ranks = finding.ranks.length ? " \u00b7 " + rankList(finding.ranks) : "";
    const pieces = finding.evidence.map((evidence, index) => {
      const item = el("li", {}, el("code", { text: evidence.file + (evidence.line ? ":" + evidence.line : "") }), " " + evidence.text + " ");
      const place = data.places[number][index];
      if (place) item.append(el("button", { text: "show in the timeline", title: evidence.span.name, onclick: () => show(place) }));
      else if (evidence.span) item.append(el("span", { class: "quiet", text: "(" + evidence.span.name.slice(0, 80) + ")" }));
      return item;
    });
    const list = pieces.length > 9 ? [el("ul", {}, ...pieces.slice(0, 8)),
      el("details", {}, el("summary", { class: "quiet", text: pieces.length - 8 + " more pieces of evidence" }), el("ul", {}, ...pieces.slice(8)))] : [el("ul", {}, ...pieces)];
    section.append(el("article", { class: "card finding " + finding.severity, id: "finding-" + (number + 1) },
      el("header", {}, el("h3", { text: `${number + 1}. ${capital(finding.title)}` }), el("span", { class: "cost", text: cost })),
      el("p", { class: "quiet" }, el("code", { text: finding.id }), ` \u00b7 ${finding.layer} \u00b7 confidence ${finding.confidence}${ranks}`),
      ...list,
      el("p", { class: "do" }, el("b", { text: "Do: " }), finding.remedy.text, ...(finding.remedy.setting ? [el("code", { class: "setting", text: finding.remedy.setting })] : [])),
      el("p", { class: "quiet", text: "Wrong if: " + finding.refuted_by }),
      el("p", { class: "quiet" }, "Afterwards: ", el("code", { text: finding.verify }))));
  });
}

// One row for each operation and size: groups that do the same are one.
function collectives() {
  if (!doc.collectives.length) return;
  const rows = new Map();
  for (const own of doc.collectives) {
    const key = own.op + " " + own.bytes;
    if (!rows.has(key)) rows.set(key, []);
    rows.get(key).push(own);
  }
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...["operation", "size", "groups", "calls", "transfer", "wait", "bus bandwidth", "of expected"]
    .map((text, index) => el("th", { text, class: index ? null : "text" })))));
  const body = el("tbody");
  table.append(body);
  const ends = (own, key, text) => { const values = own.map(c => c[key]).filter(v => v !== null); return values.length ? range(Math.min(...values), Math.max(...values), text) : ""; };
  for (const own of [...rows.values()].slice(0, 40)) {
    const rate = own.map(c => c.busbw_gbs).filter(value => value !== null), expected = own[0].expected_gbs;
    const share = rate.length && expected ? Math.max(...rate) / expected : null;
    const cell = el("td", { text: share === null ? "not known" : `${(100 * share).toFixed(0)} % of ${expected.toFixed(0)} GB/s`, title: own[0].expected_from });
    if (share !== null) cell.append(el("span", { class: "rate" }, el("i", { style: `width:${Math.min(100, 100 * share)}%` })));
    body.append(el("tr", {}, el("td", { class: "text", text: own[0].op }), ...[bytes(own[0].bytes), own.length, sum(own.map(c => c.count)),
      ends(own, "transfer_ns", time), ends(own, "wait_ns", time), ends(own, "busbw_gbs", short) + (rate.length ? " GB/s" : "")].map(text => el("td", { text })), cell));
  }
  at("collectives").append(el("h2", { text: "Collectives" }), el("p", { class: "quiet", text: "Medians over the recording. Bus bandwidth as nccl-tests defines it, from the last rank's arrival to the end; waiting is not in it." }),
    el("div", { class: "scroll card" }, table), ...(rows.size > 40 ? [el("p", { class: "quiet", text: rows.size - 40 + " further sizes are in the JSON." })] : []));
}

function undecided() {
  if (!doc.abstained.length) return;
  const body = el("tbody", {}, ...doc.abstained.map(own => el("tr", {}, el("td", { class: "text", text: own.question }), el("td", { class: "text long", text: own.why }),
    el("td", { class: "text long", text: own.capture }))));
  const head = el("tr", {}, ...["question", "why it is open", "what captures it"].map(text => el("th", { class: "text", text })));
  at("open").append(el("h2", { text: "Not decided" }), el("div", { class: "scroll card" }, el("table", {}, el("thead", {}, head), body)));
}

function inputs() {
  if (!doc.inputs.length && !doc.skipped.length) return;
  const known = new Set(doc.inputs.map(input => input.file));
  const reasons = new Map();
  for (const own of doc.skipped) reasons.set(own.file, [...(reasons.get(own.file) || []), own.count > 1 ? `${own.count} x ${own.reason}` : own.reason]);
  const formats = {};
  for (const input of doc.inputs) formats[input.format] = (formats[input.format] || 0) + 1;
  const kinds = Object.entries(formats).map(([format, number]) => number + " " + format).join(", ");
  const unread = [...reasons.keys()].filter(file => !known.has(file));
  const lines = [...doc.inputs, ...unread.map(file => ({ file, format: "not read", rank: null, events: "" }))];
  const body = el("tbody", {}, ...lines.slice(0, 400).map(input => el("tr", {}, el("td", { class: "text long", text: input.file }), el("td", { class: "text", text: input.format }),
    el("td", { text: input.rank ?? "" }), el("td", { text: input.events }), el("td", { class: "text long quiet", text: (reasons.get(input.file) || []).join("; ") }))));
  const head = el("tr", {}, ...["file", "format", "rank", "events", "left out, and why"].map((text, index) => el("th", { text, class: [0, 1, 4].includes(index) ? "text" : null })));
  const details = el("details", lines.length <= 10 ? { open: "" } : {}, el("summary", { text: `${count(doc.inputs.length, "file")} read (${kinds})` + (unread.length ? `, ${unread.length} not` : "") }),
    el("div", { class: "scroll card" }, el("table", {}, el("thead", {}, head), body)), ...(lines.length > 400 ? [el("p", { class: "quiet", text: lines.length - 400 + " more are in the JSON." })] : []));
  at("inputs").append(el("h2", { text: "Inputs" }), details);
}

sentence();
accounts();
