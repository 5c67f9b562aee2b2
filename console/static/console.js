// Keeps every part of the page that is marked data-live as the server has it.
//
// The page is fetched again every few seconds, and the marked parts are put in place of the old
// ones. Without this script the page reloads itself as a whole, more slowly.
"use strict";

(() => {
  const TIMEOUT_MS = 10_000;
  const FAILURES_UNTIL_TOLD = 2;
  const FOCUSABLE = "a[href], button, summary, input, select, [tabindex]";
  const everyMs = Number(document.body.dataset.everyMs);
  const stale = document.getElementById("stale");
  // The parts as the server sent them, before this script showed local times in them.
  const sent = new Map();
  let failures = 0;
  let timer = 0;

  const parts = (root) => root.querySelectorAll("[data-live][id]");
  const name = (element) =>
    [element.id, element.getAttribute("href"), element.form?.action, element.textContent].join(" ");

  function showLocalTimes(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      // Swedish: year, month, day, and a day of 24 hours.
      const local = moment.toLocaleString("sv", { timeZoneName: "short" });
      if (time.textContent.endsWith("UTC")) {
        time.title = time.textContent;
        time.textContent = local;
      } else {
        time.title = local;
      }
    }
  }

  function inUse(part) {
    const selection = document.getSelection();
    const selecting = !selection.isCollapsed && selection.containsNode(part, true);
    return selecting || part.matches(":has(input:focus, select:focus)");
  }

  function replace(part, fresh) {
    const open = [...part.querySelectorAll("details[open]")].map((details) => details.id);
    const focused = part.contains(document.activeElement) ? name(document.activeElement) : null;
    const scrolled = [...part.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    showLocalTimes(fresh);
    part.replaceWith(fresh);
    for (const id of open) {
      document.getElementById(id)?.setAttribute("open", "");
    }
    fresh.querySelectorAll(".scroll").forEach((box, index) => {
      box.scrollLeft = scrolled[index] ?? 0;
    });
    if (focused !== null) {
      const again = [...fresh.querySelectorAll(FOCUSABLE)].find((one) => name(one) === focused);
      again?.focus({ preventScroll: true });
    }
  }

  function take(page) {
    for (const fresh of parts(page)) {
      const html = fresh.outerHTML;
      const part = document.getElementById(fresh.id);
      if (part && sent.get(fresh.id) !== html && !inUse(part)) {
        replace(part, document.adoptNode(fresh));
        sent.set(fresh.id, html);
      }
    }
  }

  async function refresh() {
    const answer = await fetch(location.href, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (answer.redirected) {
      location.reload(); // the session is over: the reload shows where to sign in
      return;
    }
    if (!answer.ok) {
      throw new Error(`answered ${answer.status}`);
    }
    take(new DOMParser().parseFromString(await answer.text(), "text/html"));
  }

  async function turn() {
    clearTimeout(timer);
    if (!document.hidden) {
      try {
        await refresh();
        failures = 0;
      } catch {
        failures += 1;
      }
      stale.hidden = failures < FAILURES_UNTIL_TOLD;
    }
    timer = setTimeout(turn, everyMs);
  }

  for (const part of parts(document)) {
    sent.set(part.id, part.outerHTML);
  }
  showLocalTimes(document);
  // On a phone the pages' names are a line to scroll in.
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  const address = new URL(location.href);
  if (address.searchParams.has("did")) {
    address.searchParams.delete("did");
    history.replaceState(null, "", address); // a reload does not say again what was done
  }
  if (everyMs > 0) {
    timer = setTimeout(turn, everyMs);
    document.addEventListener("visibilitychange", turn);
  }
})();
