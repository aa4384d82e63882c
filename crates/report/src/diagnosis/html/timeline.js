// The timeline: lanes of spans on a canvas. Ctrl and the wheel zoom, dragging moves, as do the keys of Perfetto.
function timeline() {
  const lanes = data.timeline.lanes, names = data.timeline.names, steps = data.timeline.steps;
  if (!lanes.length) return () => {};
  const START = 0, LENGTH = 1, KIND = 2, NAME = 3;
  const kinds = [["--compute", "computing"], ["--transfer", "transfer between ranks"], ["--copy", "copy"], ["--host", "host"], ["--wait", "waiting for another rank"]];
  const LANE = 20, RULER = 22, GROUP = 6, LEFT = 176;

  // Where things are: the ruler, the findings, then the lanes, with a little room between ranks.
  const cited = data.places.flatMap((places, finding) => places.filter(Boolean).map(place => ({ finding, place })));
  const tops = [];
  let height = RULER + (cited.length ? LANE + GROUP : 0);
  lanes.forEach((lane, index) => {
    if (index && lane.group !== lanes[index - 1].group) height += GROUP;
    tops.push(height);
    height += LANE;
  });
  height += 4;
  const longest = lanes.map(lane => lane.spans.reduce((most, span) => Math.max(most, span[LENGTH]), 0));
  const first = Math.min(...lanes.map(lane => lane.spans.length ? lane.spans[0][START] : Infinity));
  const last = Math.max(...lanes.map(lane => lane.spans.reduce((end, span) => Math.max(end, span[START] + span[LENGTH]), -Infinity)));
  // At first what counts.
  const counts = steps.length ? [steps[0][1], steps.at(-1)[2]] : [first, last], edge = (counts[1] - counts[0]) / 50;
  let from = Math.max(first, counts[0] - edge), to = Math.min(last, counts[1] + edge), selected = null, measured = null, cursor = -1;

  const canvas = el("canvas", { tabindex: "0", role: "application", "aria-label": "Timeline. W and S zoom, A and D move, F shows all, N and P go through the evidence." });
  const tip = el("div", { id: "tip" }), about = el("p", { id: "selected", class: "quiet", "aria-live": "polite" });
  const view = el("div", { id: "view" }, canvas, tip);
  const tools = el("div", { class: "tools" },
    el("button", { text: "all", onclick: () => go(first, last) }),
    el("button", { text: "one step", onclick: oneStep }),
    el("button", { text: "+", "aria-label": "zoom in", onclick: () => zoom(0.5) }),
    el("button", { text: "\u2212", "aria-label": "zoom out", onclick: () => zoom(2) }),
    ...(cited.length ? [el("button", { text: "next evidence", onclick: () => next(1) })] : []),
    el("span", { class: "quiet keys", text: "W S or Ctrl+wheel: zoom \u00b7 A D or drag: move \u00b7 Shift+drag: measure \u00b7 F: all" + (cited.length ? " \u00b7 N P: evidence" : "") }));
  const used = new Set(lanes.flatMap(lane => lane.spans.map(span => span[KIND])));
  const legend = el("p", { class: "quiet" }, ...kinds.map(([name, text], kind) => used.has(kind) ? el("span", { class: "key" }, el("i", { class: "dot", style: `background:var(${name})` }), text) : ""));
  at("timeline").append(el("h2", { text: "Timeline" }), tools, view, about, legend, ...(data.note ? [el("p", { class: "quiet", text: data.note })] : []));

  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const width = () => view.clientWidth;
  const x = moment => LEFT + (moment - from) / (to - from) * (width() - LEFT);
  const momentAt = px => from + (px - LEFT) / (width() - LEFT) * (to - from);
  const span = lane => lanes[lane].spans;

  // Index of the first span of a lane that may reach beyond a moment: spans are sorted by their starts.
  const reaching = (lane, moment) => {
    let low = 0, high = span(lane).length;
    const start = moment - longest[lane];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (span(lane)[middle][START] < start) low = middle + 1; else high = middle;
    }
    return low;
  };

  function draw() {
    const ratio = window.devicePixelRatio || 1, w = width();
    canvas.width = w * ratio; canvas.height = height * ratio; canvas.style.height = height + "px";
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    const [bg, fg, quiet, line, laneColour, accent, on] = ["--bg", "--fg", "--quiet", "--line", "--lane", "--accent", "--on"].map(css);
    const palette = kinds.map(([name]) => css(name));
    c.font = "12px system-ui, sans-serif"; c.textBaseline = "middle";
    c.fillStyle = bg; c.fillRect(0, 0, w, height);
    lanes.forEach((lane, index) => { c.fillStyle = laneColour; c.fillRect(LEFT, tops[index] + 1, w - LEFT, LANE - 2); });
    ruler(c, w, quiet, line);
    bands(c, w, fg, line, quiet);
    lanes.forEach((lane, index) => {
      label(c, index, fg, quiet);
      c.save(); c.beginPath(); c.rect(LEFT, tops[index], w - LEFT, LANE); c.clip();
      spans(c, index, w, palette, on);
      c.restore();
    });
    evidence(c, w, accent, quiet, bg);
    mark(c, accent, fg);
  }

  function label(c, index, fg, quiet) {
    const lane = lanes[index], begins = !index || lanes[index - 1].group !== lane.group, y = tops[index] + LANE / 2;
    c.fillStyle = fg;
    if (begins) { c.font = "600 12px system-ui, sans-serif"; c.fillText(lane.group, 4, y); c.font = "12px system-ui, sans-serif"; }
    c.fillStyle = quiet; c.textAlign = "right"; c.fillText(lane.name, LEFT - 8, y); c.textAlign = "left";
  }

  function spans(c, index, w, palette, on) {
    const y = tops[index] + 2, tall = LANE - 4;
    // Spans below two pixels are shown by how much of each pixel they cover: a row of short copies is no block.
    const cover = palette.map(() => new Float32Array(Math.ceil(w) + 2));
    const covered = (kind, a, b) => {
      for (let pixel = Math.max(0, Math.floor(a)); pixel <= Math.min(w, Math.floor(b)); pixel++)
        cover[kind][pixel] += Math.max(0, Math.min(b, pixel + 1) - Math.max(a, pixel));
    };
    for (let at = reaching(index, from); at < span(index).length; at++) {
      const [start, length, kind, name] = span(index)[at];
      if (start > to) break;
      if (start + length < from) continue;
      const a = x(start), b = x(start + length);
      if (b - a < 2) {
        covered(kind, a, b);
        continue;
      }
      // A seam between neighbours shows that they are two.
      c.fillStyle = palette[kind]; c.fillRect(a, y, b - a > 3 ? b - a - 0.75 : b - a, tall);
      const left = Math.max(a, LEFT), room = Math.min(b, w) - left - 8;
      if (room > 34) {
        c.save(); c.beginPath(); c.rect(left, y, room + 6, tall); c.clip();
        c.fillStyle = on; c.fillText(names[name].slice(0, 120), left + 4, y + tall / 2 + 0.5); c.restore();
      }
    }
    for (let pixel = LEFT; pixel < w; pixel++) {
      let most = 0, all = 0;
      cover.forEach((own, kind) => { all += own[pixel]; if (own[pixel] > cover[most][pixel]) most = kind; });
      if (all <= 0) continue;
      c.globalAlpha = Math.min(1, 0.25 + 0.75 * all);
      c.fillStyle = palette[most]; c.fillRect(pixel, y, 1, tall);
    }
    c.globalAlpha = 1;
  }

  // Ticks at 1, 2 or 5 of a power of ten, relative to the first counted step.
  function ruler(c, w, quiet, line) {
    const zero = steps.length ? steps[0][1] : first, rough = (to - from) / Math.max(2, (w - LEFT) / 110), power = 10 ** Math.floor(Math.log10(rough));
    const tick = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough) || rough;
    const [unit, per] = tick >= 1e6 ? ["ms", 1e6] : tick >= 1e3 ? ["us", 1e3] : ["ns", 1];
    c.strokeStyle = line; c.fillStyle = quiet;
    for (let moment = Math.ceil((from - zero) / tick) * tick; moment <= to - zero; moment += tick) {
      const at = Math.round(x(moment + zero)) + 0.5;
      c.beginPath(); c.moveTo(at, RULER - 5); c.lineTo(at, height); c.stroke();
      if (at + 60 < w) c.fillText((moment / per + 0).toLocaleString("en", { maximumFractionDigits: 3 }) + " " + unit, at + 3, RULER / 2);
    }
  }

  // The counted steps of the first drawn rank.
  function bands(c, w, fg, line, quiet) {
    c.fillStyle = quiet; c.fillText("counted steps", 4, RULER / 2);
    for (const [number, start, end] of steps) {
      const a = x(start), b = x(end);
      if (b < LEFT || a > w) continue;
      c.save(); c.beginPath(); c.rect(LEFT, 0, w - LEFT, height); c.clip();
      c.strokeStyle = quiet; c.setLineDash([4, 3]);
      for (const edge of [a, b]) { c.beginPath(); c.moveTo(Math.round(edge) + 0.5, 0); c.lineTo(Math.round(edge) + 0.5, height); c.stroke(); }
      c.setLineDash([]);
      c.fillStyle = fg; c.fillRect(a + 2, 0, Math.max(1, b - a - 4), 3);
      c.restore();
    }
  }

  function evidence(c, w, accent, quiet, bg) {
    if (!cited.length) return;
    const y = RULER + 1, tall = LANE - 3;
    c.fillStyle = quiet; c.textAlign = "right"; c.fillText("findings", LEFT - 8, y + tall / 2); c.textAlign = "left";
    c.save(); c.beginPath(); c.rect(LEFT, y, w - LEFT, tall); c.clip();
    for (const { finding, place: [, start, length] } of cited) {
      const a = x(start), b = Math.max(a + 16, x(start + length));
      c.fillStyle = accent; c.fillRect(a, y, b - a, tall);
      c.fillStyle = bg; c.fillText(finding + 1 + (b - a > 90 ? ". " + doc.findings[finding].id : ""), Math.max(a, LEFT) + 4, y + tall / 2 + 0.5);
    }
    c.restore();
  }

  function mark(c, accent, fg) {
    c.save(); c.beginPath(); c.rect(LEFT, 0, width() - LEFT, height); c.clip();
    if (selected) {
      const [lane, start, length] = selected;
      c.strokeStyle = fg; c.lineWidth = 2;
      c.strokeRect(x(start) - 1, tops[lane] + 1, Math.max(4, x(start + length) - x(start)) + 2, LANE - 2);
      c.lineWidth = 1;
    }
    if (measured) {
      const [a, b] = measured.map(x);
      c.globalAlpha = 0.18; c.fillStyle = accent; c.fillRect(Math.min(a, b), RULER, Math.abs(b - a), height); c.globalAlpha = 1;
    }
    c.restore();
  }

  function go(start, end) {
    const whole = last - first, room = Math.min(whole, Math.max(500, end - start));
    from = Math.max(first, Math.min(last - room, start)); to = from + room;
    tip.style.display = "none";
    draw();
  }
  function zoom(factor, moment = (from + to) / 2) {
    const share = (moment - from) / (to - from), room = Math.max(500, Math.min(last - first, (to - from) * factor));
    go(moment - share * room, moment + (1 - share) * room);
  }
  const move = share => go(from + share * (to - from), to + share * (to - from));
  function oneStep() {
    if (!steps.length) return go(first, last);
    const [, start, end] = steps.find(own => own[2] > (from + to) / 2) || steps[0], margin = (end - start) / 50;
    go(start - margin, end + margin);
  }

  // A finding's place: the span is marked, and shown with what is around it.
  function show([lane, start, length]) {
    selected = [lane, start, length];
    const hit = span(lane).find(own => own[START] === start);
    tell(lane, hit ? hit[NAME] : null, start, length);
    go(start - 2 * Math.max(length, 5e5), start + 3 * Math.max(length, 5e5));
    view.scrollIntoView({ block: "center" });
    canvas.focus({ preventScroll: true });
  }
  function next(by) {
    if (!cited.length) return;
    cursor = (cursor + by + cited.length) % cited.length;
    show(cited[cursor].place);
  }
  function tell(lane, name, start, length, kind) {
    const zero = steps.length ? steps[0][1] : first;
    const what = kind === undefined ? "" : ` \u00b7 ${kinds[kind][1]}`;
    about.replaceChildren(el("b", { text: name === null ? "" : names[name] }), ` \u00b7 ${lanes[lane].group} ${lanes[lane].name}${what} \u00b7 ${time(length)} \u00b7 from ${time(start - zero)} to ${time(start + length - zero)}`);
  }

  // What is under the pointer: the shortest span there, or the nearest within three pixels.
  function hit(px, py) {
    const lane = tops.findIndex(top => py >= top && py < top + LANE);
    if (lane < 0 || px < LEFT) return null;
    const moment = momentAt(px), near = 3 * (to - from) / (width() - LEFT);
    let best = null;
    for (let at = reaching(lane, moment - near); at < span(lane).length && span(lane)[at][START] <= moment + near; at++) {
      const own = span(lane)[at], away = Math.max(0, own[START] - moment, moment - own[START] - own[LENGTH]);
      if (away <= near && (!best || away < best.away || away === best.away && own[LENGTH] < best.own[LENGTH])) best = { lane, own, away };
    }
    return best;
  }
  const findingAt = (px, py) => cited.length && py >= RULER && py < RULER + LANE
    ? cited.find(({ place: [, start, length] }) => px >= x(start) && px <= Math.max(x(start) + 16, x(start + length))) : null;
  const pointer = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };

  function hover(px, py) {
    const found = hit(px, py), finding = findingAt(px, py);
    tip.style.display = found || finding ? "block" : "none";
    canvas.style.cursor = finding || found ? "pointer" : "";
    if (!found && !finding) return;
    tip.textContent = finding ? `${finding.finding + 1}. ${doc.findings[finding.finding].title}` : `${names[found.own[NAME]]} \u00b7 ${time(found.own[LENGTH])}`;
    tip.style.left = Math.max(0, Math.min(px + 12, width() - tip.offsetWidth)) + "px";
    tip.style.top = py + 16 + "px";
  }
  function click(px, py) {
    const finding = findingAt(px, py), found = hit(px, py);
    if (finding) { location.hash = ""; location.hash = "finding-" + (finding.finding + 1); return; }
    selected = found && [found.lane, found.own[START], found.own[LENGTH]];
    if (found) tell(found.lane, found.own[NAME], found.own[START], found.own[LENGTH], found.own[KIND]); else about.replaceChildren();
    measured = null;
    draw();
  }

  let drag = null;
  canvas.addEventListener("wheel", event => {
    const [px] = pointer(event);
    // The wheel alone scrolls the page.
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 200), momentAt(Math.max(LEFT, px)));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move((event.deltaX || event.deltaY) / 1000);
    else return;
    event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("pointerdown", event => {
    const [px, py] = pointer(event);
    drag = { px, py, from, to, measures: event.shiftKey, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", event => {
    const [px, py] = pointer(event);
    if (!drag) return hover(px, py);
    if (!drag.moved && Math.abs(px - drag.px) < 4) return;
    drag.moved = true;
    canvas.classList.add("moving");
    if (drag.measures) {
      measured = [momentAt(Math.max(LEFT, drag.px)), momentAt(Math.max(LEFT, px))];
      about.textContent = "measured: " + time(Math.abs(measured[1] - measured[0]));
      draw();
    } else {
      const shift = (drag.px - px) / (width() - LEFT) * (drag.to - drag.from);
      go(drag.from + shift, drag.to + shift);
    }
  });
  canvas.addEventListener("pointerup", event => {
    if (drag && !drag.moved) click(...pointer(event));
    drag = null;
    canvas.classList.remove("moving");
  });
  canvas.addEventListener("pointercancel", () => { drag = null; canvas.classList.remove("moving"); });
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  canvas.addEventListener("dblclick", event => zoom(0.4, momentAt(pointer(event)[0])));
  const keys = {
    w: () => zoom(0.7), s: () => zoom(1.4), "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1.4),
    a: () => move(-0.15), d: () => move(0.15), ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15),
    f: () => go(first, last), 0: () => go(first, last), n: () => next(1), p: () => next(-1),
    Escape: () => { selected = measured = null; about.replaceChildren(); draw(); },
  };
  canvas.addEventListener("keydown", event => {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[key]) return;
    event.preventDefault();
    keys[key]();
  });
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
  // For tests and for the console.
  window.counterpoint = { range: () => [from, to], whole: [first, last], selected: () => selected };
  return show;
}

const shown = timeline();
findings(shown);
collectives();
undecided();
inputs();
