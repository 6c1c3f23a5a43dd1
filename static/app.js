// Makes pages quicker to use. Everything here has a plain link or form behind it: without scripts pages still work.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const drawer = $("#drawer");
const axisWidth = 1000;

function say(text) {
  $("#said").textContent = text;
}

/* Theme */
function toggleTheme() {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark"
    || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  say(dark ? "Light theme" : "Dark theme");
}
$("#theme").hidden = false;
$("#theme").addEventListener("click", toggleTheme);

/* Copying */
async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    const before = button.textContent;
    button.textContent = "copied";
    say("Copied");
    setTimeout(() => { button.textContent = before; }, 1500);
  } catch {
    say("The browser does not let this page copy: select the text instead.");
  }
}

/* The drawer. Its change is part of the address, so that the address can be shared. */
let returnTo = null;

function remember(change) {
  const here = new URL(location.href);
  if (change) here.searchParams.set("change", change);
  else here.searchParams.delete("change");
  history.replaceState(history.state, "", here);
}

async function openDrawer(link) {
  const change = new URL(link.href).pathname.split("/").pop();
  if (!drawer.contains(link)) returnTo = link;
  await htmx.ajax("GET", "/changes/" + change, { target: "#drawer", select: "#change", swap: "innerHTML" });
  if (!$("#change", drawer)) return;
  drawer.hidden = false;
  drawer.scrollTop = 0;
  drawer.focus();
  if ($("#incident")) remember(change);
}

function closeDrawer() {
  if (drawer.hidden) return false;
  drawer.hidden = true;
  drawer.replaceChildren();
  if ($("#incident")) remember(null);
  if (returnTo && returnTo.isConnected) returnTo.focus();
  return true;
}

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

/* Clicks */
document.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  const link = event.target.closest("a[data-drawer]");
  const range = event.target.closest("a[data-window]");
  const button = event.target.closest("button");
  const row = event.target.closest("tr.row");
  if (link) {
    event.preventDefault();
    openDrawer(link);
  } else if (range) {
    event.preventDefault();
    showWindow(range.getAttribute("href"));
  } else if (button?.dataset.copy !== undefined) copy(button, button.dataset.copy);
  else if (button?.dataset.copyLink !== undefined) copy(button, location.href);
  else if (button?.dataset.close !== undefined) closeDrawer();
  else if (row && !event.target.closest("a, input") && !String(getSelection())) $("a", row)?.click();
});

/* Keys */
function step(selector, by) {
  const all = $$(selector);
  const at = all.findIndex((one) => one.classList.contains("current"));
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  if (!next) return;
  for (const one of $$(".current")) one.classList.remove("current");
  next.classList.add("current");
  next.scrollIntoView({ block: "nearest" });
  pointAt(next.dataset.x);
  say(next.innerText.replace(/\s+/g, " "));
}

const keys = {
  "/": () => $("#search").focus(),
  j: () => step("tr.row", 1),
  k: () => step("tr.row", -1),
  "]": () => step("[data-suspect]", 1),
  "[": () => step("[data-suspect]", -1),
  t: toggleTheme,
  Enter: () => $(".current a")?.click(),
  Escape: () => {
    if (endBrush(false) || closeDrawer()) return;
    for (const one of $$(".current")) one.classList.remove("current");
    pointAt(null);
  },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("input, select, textarea");
  if (typing && event.key === "Escape") typing.blur();
  if (typing || !keys[event.key]) return;
  if (event.key === "Enter" && (event.target.closest("a, button, summary") || !$(".current"))) return;
  event.preventDefault();
  keys[event.key]();
});

/* Forms leave out what is empty: the address stays short. */
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-filters], .search")) return;
  for (const field of $$("input, select", event.target)) field.disabled = field.value === "";
});
addEventListener("pageshow", () => $$("form [disabled]").forEach((field) => { field.disabled = false; }));

/* Refusals are said, not swapped in. */
document.addEventListener("htmx:before:response", (event) => {
  const { ctx } = event.detail;
  const { status } = ctx.response;
  if (ctx.sourceElement.id === "news") reached(status);
  if (status < 400) return;
  event.preventDefault();
  if (ctx.sourceElement.id === "news") return;
  if (status === 401) location.reload();
  else say(`The server answered ${status}: try again.`);
});

document.addEventListener("htmx:error", (event) => {
  if (event.detail.ctx?.sourceElement.id === "news") reached(0);
  else if (event.detail.ctx) say("The server was not reached: try again.");
});

/* An open page asks for news by itself (#news). What the reader has before them stays: see `keeping`. */
let currentAt = new Date();

function reached(status) {
  const words = $("#unreached");
  words.hidden = status >= 200 && status < 400;
  if (words.hidden) {
    currentAt = new Date();
    return;
  }
  const why = { 401: "Signed out: sign in again to follow", 404: "No longer kept" }[status];
  const at = currentAt.toISOString().slice(11, 19);
  const text = why ? `${why}; what you see is from ${at}.` : `Not reached since ${at}; what you see is from then.`;
  if (words.textContent !== text) words.textContent = text;
}

document.addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  if (ctx.sourceElement.id !== "news" || !$("#incident")) return;
  const read = $$("[data-suspect]").filter((one) => one.matches(".current, :focus-within") || $("details[open]", one));
  if (read.length) ctx.request.body.set("kept", read.map((one) => one.dataset.change).join(","));
  ctx.request.body.set("shown", $$("#rows .row").length);
});

/* Opened details, the selected row and the focus are carried over into what is new. */
let keeping = null;

document.addEventListener("htmx:before:swap", (event) => {
  const { ctx, tasks } = event.detail;
  if (ctx.sourceElement.id !== "news") return;
  if (brushing) {
    event.preventDefault();
    return;
  }
  for (const { fragment } of tasks) {
    for (const one of $$("main details[open][id]")) fragment.getElementById(one.id)?.setAttribute("open", "");
  }
  keeping = { current: $(".current"), focus: document.activeElement, cursor: $("#cursor")?.getAttribute("x1") };
});

document.addEventListener("htmx:after:swap", () => {
  if (!keeping) return;
  const { current, focus, cursor } = keeping;
  keeping = null;
  if (current?.isConnected) current.classList.add("current");
  if (focus?.isConnected && focus !== document.activeElement) focus.focus({ preventScroll: true });
  for (const attribute of cursor ? ["x1", "x2"] : []) $("#cursor").setAttribute(attribute, cursor);
  if ($("#ranked")) say("New: " + $("#ranked").textContent);
});

const asked = new URL(location.href).searchParams.get("change");
if (asked && $("#incident")) openDrawer(Object.assign(document.createElement("a"), { href: "/changes/" + asked }));
