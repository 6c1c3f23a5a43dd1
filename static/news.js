// What the server answers: refusals, and news for a page that stays open. Uses app.js and chart.js.
"use strict";

/* Refusals are said where everybody sees them, in the words of the server's page, and not swapped in. What a page asks
   for by itself is no click: it leaves the page as it is, and says since when. */
const polls = (element) => element.matches("[data-hx-trigger*=every]");

function refuse(text) {
  $("#refused").hidden = !text;
  $("#refused [data-words]").textContent = text;
}

async function refuseWith(response) {
  const page = new DOMParser().parseFromString(await response.raw.text(), "text/html");
  const [heading, words] = [$("h1", page)?.textContent, $("main h1 + p", page)?.textContent];
  refuse(heading && words ? `${heading}. ${words}` : `The server answered ${response.status}: try again.`);
}

document.addEventListener("htmx:before:response", (event) => {
  const { ctx } = event.detail;
  const { status } = ctx.response;
  const isPolled = polls(ctx.sourceElement);
  if (isPolled && (ctx.sourceElement.id === "news" || status !== 404)) reached(status);
  if (!isPolled) refuse("");
  if (status < 400) return;
  event.preventDefault();
  if (isPolled) return;
  if (status === 401) location.reload();
  else refuseWith(ctx.response);
});

document.addEventListener("htmx:error", (event) => {
  if (!event.detail.ctx) return;
  if (polls(event.detail.ctx.sourceElement)) reached(0);
  else refuse("The server was not reached: try again.");
});

$("#refused button").addEventListener("click", () => refuse(""));

/* A form is sent once: who clicks twice sees the answer to the first, and what that did is not done again. */
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent !== undefined) {
    event.preventDefault();
    refuse("It is sent already: wait for the answer, or load this page again.");
  }
  form.dataset.sent = "";
});
addEventListener("pageshow", () => $$("form[data-sent]").forEach((form) => delete form.dataset.sent));

/* What answers a form and has no address of its own stands at that of its page: who loads it again, or comes back to it,
   sees that page and is not asked to send the form once more. */
const answer = $("main [data-at]");
if (answer) history.replaceState(history.state, "", answer.dataset.at);

/* Further rows stand in the place of their link: who had the focus there goes on at the first of them. */
let further = null;

document.addEventListener("htmx:before:swap", (event) => {
  const link = event.detail.ctx.sourceElement;
  const row = link === document.activeElement && link.closest("tr.more");
  further = row ? { table: row.closest("table"), place: row.rowIndex } : null;
});

document.addEventListener("htmx:after:swap", () => {
  const row = further?.table.rows[further.place];
  further = null;
  if (!row) return;
  row.tabIndex = -1; // where nothing older matches it has no link
  ($("a", row) ?? row).focus();
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
