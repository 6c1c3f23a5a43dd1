// What the server answers: refusals, and news for a page that stays open. Uses app.js and chart.js.
"use strict";

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
