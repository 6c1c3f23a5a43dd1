// The drawing under the hand: pointing and brushing. Uses app.js.
"use strict";

const axisWidth = 1000;

/* Windows of time: the same address, only the incident is exchanged. */
function showWindow(address) {
  return htmx.ajax("GET", address, { target: "#incident", select: "#incident", swap: "outerHTML", push: "true" });
}

function windowAddress(from, to) {
  const incident = $("#incident");
  const address = new URL(incident.dataset.path + incident.dataset.query, location.href);
  address.searchParams.set("from", new Date(from).toISOString());
  address.searchParams.set("to", new Date(to).toISOString());
  return address.pathname + address.search;
}

function timeAt(place) {
  const incident = $("#incident");
  const [from, to] = [Date.parse(incident.dataset.from), Date.parse(incident.dataset.to)];
  return from + (to - from) * Math.min(Math.max(place, 0), 1);
}

/* Pointing: rows, suspects and marks of one change light up together. */
function pointAt(x) {
  const cursor = $("#cursor");
  if (!cursor) return;
  const place = x === null || x === undefined ? "-1%" : x / 10 + "%";
  cursor.setAttribute("x1", place);
  cursor.setAttribute("x2", place);
}

function light(change) {
  for (const lit of $$(".lit")) lit.classList.remove("lit");
  if (change) for (const row of $$(`[data-change="${change}"]`)) row.classList.add("lit");
}

function nearest(plot, event) {
  const box = plot.getBoundingClientRect();
  const [x, y] = [((event.clientX - box.left) / box.width) * axisWidth, event.clientY - box.top];
  const reach = (8 / box.width) * axisWidth;
  if (plot.told !== plot.dataset.spots) [plot.told, plot.spots] = [plot.dataset.spots, JSON.parse(plot.dataset.spots)];
  let best = null;
  let least = 9;
  for (const spot of plot.spots) {
    const beside = Math.max(spot[0] - x, x - spot[1], 0);
    const away = Math.hypot((beside / reach) * 8, spot[2] - y);
    if (beside <= reach && away < least) [best, least] = [spot, away];
  }
  return best;
}

function showTip(chart, event, spot) {
  const tip = $("#tip");
  tip.hidden = !spot;
  if (!spot) return;
  tip.textContent = spot[4];
  const box = chart.getBoundingClientRect();
  const left = Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth - 4);
  tip.style.left = Math.max(left, 0) + "px";
  tip.style.top = event.clientY - box.top + 14 + "px";
}

document.addEventListener("pointermove", (event) => {
  if (brushing) return drawBrush(event);
  const chart = event.target.closest("#chart");
  if (chart) {
    const plot = event.target.closest(".plot[data-spots]");
    const spot = plot && nearest(plot, event);
    showTip(chart, event, spot);
    light(spot && spot[3]);
    pointAt(spot ? spot[0] : null);
    chart.classList.toggle("pointing", Boolean(spot && spot[3]));
    return;
  }
  const row = event.target.closest("[data-x]");
  pointAt(row ? row.dataset.x : null);
  light(null);
});

/* Brushing: drag over the drawing to see that time only. */
let brushing = null;

function placeOn(event) {
  const box = $("#chart .over").getBoundingClientRect();
  return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
}

function drawBrush(event) {
  brushing.end = placeOn(event);
  const [from, to] = [Math.min(brushing.start, brushing.end), Math.max(brushing.start, brushing.end)];
  const brush = $("#brush");
  brush.setAttribute("x", from * 100 + "%");
  brush.setAttribute("width", (to - from) * 100 + "%");
}

function endBrush(keep) {
  const done = brushing;
  brushing = null;
  const chart = $("#chart");
  if (chart) chart.classList.remove("brushing");
  if ($("#brush")) $("#brush").setAttribute("width", "0");
  return done && keep && Math.abs(done.end - done.start) > 0.01 ? done : null;
}

document.addEventListener("pointerdown", (event) => {
  const chart = event.target.closest("#chart");
  if (!chart || event.button !== 0 || !event.target.closest(".plot") || event.pointerType === "touch") return;
  event.preventDefault();
  brushing = { start: placeOn(event), end: placeOn(event), plot: event.target.closest(".plot[data-spots]") };
  chart.classList.add("brushing");
});

document.addEventListener("pointerup", (event) => {
  if (!brushing) return;
  const plot = brushing.plot;
  const done = endBrush(true);
  if (done) {
    const [from, to] = [timeAt(Math.min(done.start, done.end)), timeAt(Math.max(done.start, done.end))];
    showWindow(windowAddress(from, to));
  } else if (plot) {
    const spot = nearest(plot, event);
    if (spot && spot[3]) openDrawer(Object.assign(document.createElement("a"), { href: "/changes/" + spot[3] }));
  }
});
document.addEventListener("pointercancel", () => endBrush(false));
