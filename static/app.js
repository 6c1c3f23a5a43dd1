// Makes pages quicker to use. Everything here has a plain link or form behind it: without scripts pages still work.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const drawer = $("#drawer");

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
  const change = new URL(link.getAttribute("href"), location.href).pathname.split("/").pop(); // href of an SVG link is no text
  if (!drawer.contains(link)) returnTo = link;
  await htmx.ajax("GET", "/changes/" + change, { target: "#drawer", select: "#change", swap: "innerHTML" });
  if (!$("#change", drawer)) {
    if ($("#refused").hidden) refuse("What was answered is no change: load this page again.");
    return;
  }
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
  ArrowDown: () => step("tr.row", 1),
  ArrowUp: () => step("tr.row", -1),
  t: toggleTheme,
  "?": () => $("#keys").showModal(),
  Enter: () => $(".current a")?.click(),
  Escape: () => {
    refuse("");
    if (endBrush(false) || closeDrawer()) return;
    for (const one of $$(".current")) one.classList.remove("current");
    pointAt(null);
  },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("input, select, textarea");
  if (typing && event.key === "Escape") typing.blur();
  if (typing || !keys[event.key] || $("#keys").open) return;
  if (event.key.startsWith("Arrow") && (!$("tr.current") || !drawer.hidden)) return; // they scroll
  if (event.key === "Enter" && (event.target.closest("a, button, summary") || !$(".current"))) return;
  event.preventDefault();
  keys[event.key]();
});

/* Forms leave out what is empty: the address stays short. All times are UTC, so a time needs not say it. */
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-filters], .search")) return;
  for (const field of $$("input[pattern]", event.target)) {
    const [, day, time, zone] = /^(\S{10})[Tt ]?([\d:.]*)(.*)$/.exec(field.value.trim()) ?? [];
    if (day) field.value = `${day}T${time || "00:00"}${zone || "Z"}`;
  }
  for (const field of $$("input, select", event.target)) field.disabled = field.value === "";
});
addEventListener("pageshow", () => $$("form [disabled]").forEach((field) => { field.disabled = false; }));

const asked = new URL(location.href).searchParams.get("change");
if (asked && $("#incident")) openDrawer(Object.assign(document.createElement("a"), { href: "/changes/" + asked }));
