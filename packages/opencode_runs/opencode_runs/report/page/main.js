// Which view the address names, and the keys.

let index = null;
let listed = [];
let lastFilter = "";

const KEYS = [["/", "search"], ["j, k", "next or previous row, or message"], ["Enter", "open"], ["[ and ]", "previous or next rollout"], ["u", "back to the list"], ["g", "overview"], ["?", "these shortcuts"]];

async function view() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const filter = new URLSearchParams(query || "");
  if (parts[0] === "rollouts") {
    lastFilter = query ? `?${query}` : "";
    return ["rollouts", rolloutsView(filter)];
  }
  if (parts[0] === "r") return ["rollouts", await rolloutView(parts[1] || "", parts.slice(2))];
  if (parts[0] === "task") return ["rollouts", await taskView(parts.slice(1).join("/"), filter)];
  if (parts[0] === "time") return ["time", overTime()];
  if (parts[0] === "keys") return ["keys", [h("h1", {}, "Shortcuts"), table(["key", "does"], KEYS.map(([key, does]) => [h("kbd", {}, key), does]), { label: "Shortcuts" })]];
  return ["", overview(Number(filter.get("run")) || 0)];
}

let latest = 0;
async function show() {
  const request = ++latest;
  const focused = document.activeElement?.id;
  const [tab, content] = await view();
  if (request !== latest) return;
  const main = document.getElementById("main");
  main.replaceChildren(...[content].flat(Infinity).filter((part) => part instanceof Node));
  const tabs = [["", "Overview", "#/"], ["rollouts", "Rollouts", "#/rollouts"], ["time", "Over time", "#/time"], ["keys", "Shortcuts", "#/keys"]];
  const curves = index.runs.some((run) => index.runs.filter((other) => other.series === run.series).length > 1);
  document.getElementById("tabs").replaceChildren(...tabs.filter(([name]) => name !== "time" || curves).map(([name, label, href]) => h("a", { href, "aria-current": name === tab ? "page" : false }, label)));
  // With the next frame, which lays the page out anyway.
  requestAnimationFrame(() => document.querySelector("#tabs a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }));
  const place = focused && focused !== "main" && document.getElementById(focused);
  if (place) {
    place.focus();
    if (place.type === "search") place.setSelectionRange(place.value.length, place.value.length);
  }
  main.dataset.ready = location.hash;
  toMessage();
}

// The address may name a message.
function toMessage() {
  const found = location.hash.match(/\/(?:m|branch\/\d+)\/(\d+)$/);
  const message = found && document.getElementById(`m${found[1]}`);
  if (message) {
    message.scrollIntoView({ block: "start" });
    message.focus({ preventScroll: true });
  }
}

function move(by) {
  const items = [...document.querySelectorAll("tr.rollout a.open, article.message")];
  if (!items.length) return;
  const now = items.findIndex((item) => item === document.activeElement || item.contains(document.activeElement));
  const next = items[Math.min(items.length - 1, Math.max(0, now + by))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

function beside(by) {
  const id = decodeURIComponent(location.hash.split("/")[2] || "");
  const rows = listed.length ? listed : index.rows;
  const at = rows.findIndex((row) => row.id === id);
  if (at >= 0 && rows[at + by]) location.hash = rolloutLink(rows[at + by]);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const act = {
    "/": () => (location.hash.startsWith("#/rollouts") ? document.getElementById("search")?.focus() : ((location.hash = `#/rollouts${lastFilter}`), setTimeout(() => document.getElementById("search")?.focus(), 50))),
    j: () => move(1), k: () => move(-1), "[": () => beside(-1), "]": () => beside(1),
    u: () => (location.hash = `#/rollouts${lastFilter}`), g: () => (location.hash = "#/"), "?": () => (location.hash = "#/keys"),
  }[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

let shownPath = "";
addEventListener("hashchange", async () => {
  const place = location.hash.split("?")[0].replace(/\/(?:m|branch\/\d+)\/\d+$/, "");
  const same = place === shownPath;
  shownPath = place;
  if (same && document.querySelector("article.message") && /\/m\/\d+$/.test(location.hash)) return toMessage();
  await show();
  if (!/\/m\/\d+$/.test(location.hash)) scrollTo(0, 0);
});

(async () => {
  const text = document.getElementById("index").textContent;
  index = text.startsWith("{") ? JSON.parse(text) : await unpack(text);
  listed = index.rows;
  await show();
})();
