// Graphs under the hand: one cursor over all of them, their values there, and dragging to see that time only.
// A value is read off the drawing: the height of its curve.
"use strict";

const curves = new WeakMap();

function pointsOf(path) {
  if (!curves.has(path)) {
    const pieces = path.getAttribute("d").split("M").filter(Boolean);
    curves.set(path, pieces.map((piece) => piece.replace("h0", "").split("L").map((point) => point.split(" ").map(Number))));
  }
  return curves.get(path);
}

function heightAt(path, x) {
  for (const piece of pointsOf(path)) {
    const width = piece.length > 1 ? (piece[1][0] - piece[0][0]) / 2 : 4;
    if (x < piece[0][0] - width || x > piece[piece.length - 1][0] + width) continue;
    return piece.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best))[1];
  }
  return null;
}

function figure(value, unit) {
  const short = (number) => (number === 0 ? "0" : Math.abs(number) >= 100 ? Math.round(number).toLocaleString("en") : String(Number(number.toPrecision(Math.abs(number) < 1 ? 2 : 3))));
  if (unit === "s" && value > 0 && value < 1) return short(value * 1000) + " ms";
  if (unit === "B") {
    const names = ["B", "KiB", "MiB", "GiB"];
    while (value >= 1024 && names.length > 1) {
      value /= 1024;
      names.shift();
    }
    return short(value) + " " + names[0];
  }
  return unit.startsWith("/") ? short(value) + unit : `${short(value)} ${unit}`.trim();
}

function pointGraphs(share) {
  for (const frame of $$("[data-graph]")) {
    const line = $(".cursor", frame);
    const legend = $(".legend", frame.parentElement);
    for (const end of ["x1", "x2"]) line.setAttribute(end, share === null ? "-1%" : share * 100 + "%");
    legend.classList.toggle("pointing", share !== null);
    const { base, top, peak, unit } = frame.dataset;
    $$("[data-value]", legend).forEach((cell, number) => {
      const height = share === null ? null : heightAt($$(".plot .curve:not(.dots)", frame)[number], share * axisWidth);
      if (share === null) cell.textContent = cell.dataset.last;
      else cell.textContent = height === null ? "–" : figure(((base - height) / (base - top)) * peak, unit);
    });
  }
}

/* A line and its row of the legend light up together: by pointing at either. */
const REACH = 10;

function lightLine(figure, number) {
  $(".plot", figure).classList.toggle("lit", number !== null);
  for (const lit of $$(".lit", figure)) if (!lit.matches(".plot")) lit.classList.remove("lit");
  if (number === null) return;
  $$(".curve:not(.dots)", $(".plot", figure))[number].classList.add("lit");
  $$("tbody tr", figure)[number].classList.add("lit");
}

function lineAt(frame, event) {
  const y = event.clientY - $(".plot", frame).getBoundingClientRect().top;
  let [best, least] = [null, REACH];
  $$(".plot .curve:not(.dots)", frame).forEach((path, number) => {
    const height = heightAt(path, shareOf(frame, event) * axisWidth);
    const away = height === null ? REACH : Math.abs(height - y);
    if (away < least) [best, least] = [number, away];
  });
  return best;
}

function pointLine(event) {
  const figure = event.target.closest(".graph");
  for (const one of $$(".graph")) if (one !== figure && $(".plot.lit", one)) lightLine(one, null);
  if (!figure) return;
  const row = event.target.closest(".legend tbody tr");
  const frame = event.target.closest("[data-graph]");
  lightLine(figure, row ? $$("tbody tr", figure).indexOf(row) : frame ? lineAt(frame, event) : null);
}

let share = null;
let waiting = false;
let dragged = null;

function shareOf(frame, event) {
  const box = $(".over", frame).getBoundingClientRect();
  return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
}

function brushGraph(frame, from, to) {
  $(".brush", frame).setAttribute("x", from * 100 + "%");
  $(".brush", frame).setAttribute("width", to > from ? (to - from) * 100 + "%" : "0");
}

document.addEventListener("pointermove", (event) => {
  const frame = dragged?.frame ?? event.target.closest("[data-graph]");
  share = frame ? shareOf(frame, event) : null;
  if (!dragged) pointLine(event);
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    pointGraphs(share);
    if (dragged && share !== null) brushGraph(dragged.frame, Math.min(dragged.share, share), Math.max(dragged.share, share));
  });
});

document.addEventListener("pointerdown", (event) => {
  const frame = event.target.closest("[data-graph]");
  if (!frame || event.button !== 0 || event.pointerType === "touch") return;
  event.preventDefault();
  dragged = { frame, share: shareOf(frame, event) };
});

document.addEventListener("pointerup", (event) => {
  if (!dragged) return;
  const { frame, share: start } = dragged;
  const end = shareOf(frame, event);
  dragged = null;
  brushGraph(frame, 0, 0);
  if (Math.abs(end - start) < 0.01) return;
  const { from, to } = frame.closest("[data-from]").dataset;
  const at = (place, whole) => new Date(1000 * whole((Date.parse(from) + (Date.parse(to) - Date.parse(from)) * place) / 1000)).toISOString();
  const address = new URL(location.href);
  address.searchParams.delete("minus");
  address.searchParams.set("from", at(Math.min(start, end), Math.floor));
  address.searchParams.set("to", at(Math.max(start, end), Math.ceil));
  location.assign(address);
});
document.addEventListener("pointercancel", () => {
  if (dragged) brushGraph(dragged.frame, 0, 0);
  dragged = null;
});
