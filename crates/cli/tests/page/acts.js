// What a person does with the page, and what it shows then; the answers are written where the test reads them.
const told = {};
const canvas = document.querySelector("canvas");
// Events made by a script have no pointer to capture.
canvas.setPointerCapture = () => {};
const key = name => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: name, cancelable: true, bubbles: true }));
const wheel = more => { const event = new WheelEvent("wheel", { deltaY: -100, clientX: 500, cancelable: true, ...more }); canvas.dispatchEvent(event); return event.defaultPrevented; };
const box = () => canvas.getBoundingClientRect();
const pointer = (type, px, py, more = {}) => canvas.dispatchEvent(new PointerEvent(type, { clientX: box().left + px, clientY: box().top + py, bubbles: true, ...more }));
const room = () => { const [from, to] = counterpoint.range(); return to - from; };

told.title = document.title;
told.fits = document.documentElement.scrollWidth <= window.innerWidth;
told.dark = matchMedia("(prefers-color-scheme: dark)").matches;
told.background = getComputedStyle(document.body).backgroundColor;
told.requests = performance.getEntriesByType("resource").length;

const cells = row => [...row.cells].slice(2).map(cell => Math.round(1000 * parseFloat(cell.textContent)));
const table = document.querySelector("#accounts table");
const rows = [...table.tBodies[0].rows].map(cells);
told.adds_up = cells(table.tFoot.rows[0]).map((sum, column) => sum - rows.reduce((all, row) => all + row[column], 0));

// Everything is grey where nothing is painted.
const paint = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
const colours = new Set();
for (let at = 0; at < paint.length; at += 4) if (Math.max(paint[at], paint[at + 1], paint[at + 2]) - Math.min(paint[at], paint[at + 1], paint[at + 2]) > 90) colours.add(paint.slice(at, at + 3).join());
told.colours = colours.size;

key("f");
const whole = room();
told.whole = whole === counterpoint.whole[1] - counterpoint.whole[0];
key("w");
told.key_zooms = room() < whole;
const before = counterpoint.range()[0];
key("d");
told.key_moves = counterpoint.range()[0] > before;
key("f");
told.wheel_scrolls = !wheel({}) && room() === whole;
told.wheel_zooms = wheel({ ctrlKey: true }) && room() < whole;
key("f");
[...document.querySelectorAll("#timeline button")].find(button => button.textContent === "+").click();
const start = counterpoint.range()[0];
pointer("pointerdown", 500, 80); pointer("pointermove", 400, 80); pointer("pointerup", 400, 80);
told.drag_moves = counterpoint.range()[0] > start;
pointer("pointerdown", 300, 80, { shiftKey: true }); pointer("pointermove", 400, 80, { shiftKey: true }); pointer("pointerup", 400, 80);
told.measures = document.getElementById("selected").textContent;

key("f");
const button = document.querySelector(".finding li button");
button.click();
const [lane, begins, length] = counterpoint.selected();
const [from, to] = counterpoint.range();
told.link = { shown: from <= begins && begins + length <= to && room() < whole, name: document.querySelector("#selected b").textContent, cites: button.title };
key("Escape");
told.escape = counterpoint.selected();
key("n");
told.next = counterpoint.selected()[1] === begins;
// The findings' row is under the ruler; the span of the evidence is 2/5 from the left.
let found = 0;
for (let px = 180; px < box().width && !found; px += 4) {
  pointer("pointermove", px, 32);
  if (document.getElementById("tip").style.display === "block") found = px;
}
told.tip = document.getElementById("tip").textContent;
pointer("pointerdown", found, 32); pointer("pointerup", found, 32);
told.hash = location.hash;
told.target = document.querySelector(":target h3")?.textContent;
told.errors = window.errors;
document.body.append(Object.assign(document.createElement("pre"), { id: "told", textContent: JSON.stringify(told) }));
