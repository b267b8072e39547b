// The list of rollouts: filters, order, search; and the attempts of one task side by side.

const SHOWN = 200;
const taskLink = (key) => `#/task/${encodeURIComponent(key)}`;
const rolloutLink = (row) => `#/r/${encodeURIComponent(row.id)}`;
const rewardText = (row) => (row.reward === null || row.reward === undefined ? "–" : fixed(row.reward, 2));
const whole_seconds = (row) => (row.times ? sum(["boot", "setup", "agent", "finalize", "scoring"].map((phase) => row.times[phase])) : null);

// The columns that every list has, and how a row is ordered by each; a metric is a column of its own where one asks for it.
const COLUMNS = {
  reward: (row) => row.reward, task: (row) => String(row.task), outcome: (row) => row.outcome, stop: (row) => row.stop || "", turns: (row) => row.turns,
  length: (row) => row.tokens, time: whole_seconds, tools: (row) => sum(Object.values(row.tools || {})), "last words": (row) => row.last || "",
};
const metricOf = (row, name) => (row.metrics ? row.metrics[name] ?? 0 : null);
const valueOf = (row, name) => (name in COLUMNS ? COLUMNS[name](row) : name === "cost" ? cost(row) : metricOf(row, name)) ?? null;
const failure = (row) => `${(row.errors || []).at(-1)}: ${row.message}`.replace(/\d+/g, "N");

function ordered(rows, by) {
  const [name, down] = by.startsWith("-") ? [by.slice(1), -1] : [by, 1];
  const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
  return rows.sort((one, other) => {
    const [a, b] = [valueOf(one, name), valueOf(other, name)];
    return a === null || b === null ? (a === null) - (b === null) : down * compare(a, b);
  });
}

function asCsv(rows, columns) {
  const names = ["id", "run", "model", ...columns];
  // A cell that begins like a formula would be one for a spreadsheet.
  const quoted = (value) => {
    const text = String(value ?? "");
    return `"${(typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replace(/"/g, '""')}"`;
  };
  const line = (row) => [row.id, index.runs[row.run].label, row.model, ...columns.map((name) => valueOf(row, name))].map(quoted).join(",");
  return [names.map(quoted).join(","), ...rows.map(line)].join("\r\n") + "\r\n";
}

function saveCsv(rows, columns) {
  const link = h("a", { href: URL.createObjectURL(new Blob([asCsv(rows, columns)], { type: "text/csv" })), download: "rollouts.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
}

const haystack = (row) => `${row.task}\n${row.key}\n${row.id}\n${row.prompt}\n${row.outcome}\n${row.stop}\n${row.last}\n${row.model}\n${(row.errors || []).join(" ")}\n${(row.findings || []).join(" ")}`.toLowerCase();

// Which rows fit a filter, as the address of the page spells it.
function fitting(filter) {
  const words = (filter.get("q") || "").toLowerCase();
  const within = filter.get("in") ? new Set(filter.get("in").split(",")) : null;
  const [low, high] = [filter.get("min"), filter.get("max")].map((value) => (value ? Number(value) : null));
  const rows = index.rows.filter(
    (row) =>
      (!filter.get("run") || row.run === Number(filter.get("run"))) &&
      (!filter.get("from") || (row.branch && `${row.branch.trace_id} ${row.branch.turn}` === filter.get("from"))) &&
      (!filter.get("outcome") || row.outcome === filter.get("outcome")) &&
      (!filter.get("stop") || row.stop === filter.get("stop")) &&
      (!filter.get("error") || failure(row) === filter.get("error")) &&
      (!filter.get("tool") || (row.tools || {})[filter.get("tool")]) &&
      (!filter.get("finding") || (row.findings || []).includes(filter.get("finding"))) &&
      (low === null || (row.reward !== null && row.reward >= low)) &&
      (high === null || (row.reward !== null && row.reward <= high)) &&
      (!words || (row.text ??= haystack(row)).includes(words) || (within && within.has(row.id))),
  );
  return filter.get("sort") ? ordered(rows, filter.get("sort")) : rows;
}

const cell = (name, ...body) => h("td", { "data-name": name }, body);

function rowOf(row, further) {
  const tools = Object.entries(row.tools || {});
  return h("tr", { class: "rollout" },
    cell("reward", h("span", { class: `reward ${row.reward === null ? "none" : row.reward >= index.threshold - 1e-9 ? "good" : row.reward > 0 ? "warn" : "bad"}` }, rewardText(row))),
    cell("task", h("a", { href: rolloutLink(row), class: "open" }, short(String(row.task), 70)), index.runs.length > 1 && h("small", { class: "quiet" }, ` ${index.runs[row.run].label}`)),
    cell("outcome", h("span", { class: `badge ${OUTCOME_KIND(row)}` }, row.outcome), row.forks > 0 && h("span", { class: "badge fork", title: "forks" }, `⑂ ${row.forks}`)),
    cell("stop", h("span", { class: "quiet" }, row.stop || "–")),
    cell("turns", number(row.turns), row.subs > 0 && h("small", { class: "quiet" }, ` +${number(row.subs)} sub`)),
    cell("length", number(row.tokens)),
    cell("time", seconds(whole_seconds(row))),
    further.map((name) => cell(name, name === "cost" ? dollars(cost(row) ?? 0) : number(metricOf(row, name), Number.isInteger(metricOf(row, name)) ? 0 : 3))),
    cell("tools", h("span", { class: "quiet" }, short(tools.map(([name, count]) => `${name} ${count}`).join(" · "), 60))),
    cell("last words", h("span", { class: "quiet last" }, short(row.last || (row.errors || []).at(-1) || "", 90))));
}

function rolloutsView(filter) {
  const rows = fitting(filter);
  const go = (name, value) => {
    const next = new URLSearchParams(filter);
    if (name === "q") next.delete("in");
    if (name === "add") [name, value] = ["columns", [...(filter.get("columns") || "").split(",").filter(Boolean), value].join(",")];
    if (value) next.set(name, value);
    else next.delete(name);
    history.replaceState(null, "", `#/rollouts?${next}`);
    show();
  };
  const choice = (name, label, options) =>
    h("label", {}, h("span", {}, label), h("select", { on: { change: (event) => go(name, event.target.value) }, "data-filter": name },
      options.map(([value, text]) => h("option", { value, selected: (filter.get(name) || "") === value }, text))));
  const any = (label) => [["", label]];
  const tools = [...new Set(index.rows.flatMap((row) => Object.keys(row.tools || {})))].sort();
  const findings = [...new Set(index.rows.flatMap((row) => row.findings || []))].sort();
  const metrics = [...new Set(index.rows.flatMap((row) => Object.keys(row.metrics || {})))].sort();
  const further = [...(index.prices ? ["cost"] : []), ...(filter.get("columns") || "").split(",").filter((name) => metrics.includes(name))];
  const columns = Object.keys(COLUMNS).toSpliced(7, 0, ...further);
  const by = filter.get("sort") || "";
  const heading = (name) => h("th", { scope: "col", "aria-sort": by === name ? "ascending" : by === `-${name}` ? "descending" : false },
    h("button", { type: "button", class: "order", id: `by-${name}`, title: "order by this", on: { click: () => go("sort", by === `-${name}` ? name : by === name ? "" : `-${name}`) } }, name, by === name ? " ↑" : by === `-${name}` ? " ↓" : ""));
  const search = h("input", { type: "search", id: "search", value: filter.get("q") || "", placeholder: "task, words, error … ( / )", "aria-label": "Search", on: { input: (event) => delayed(() => go("q", event.target.value)) } });
  const body = h("tbody", {}, rows.slice(0, SHOWN).map((row) => rowOf(row, further)));
  let until = SHOWN;
  const more = h("button", { type: "button", class: "more" }, "");
  const label = () => {
    more.hidden = until >= rows.length;
    more.textContent = `Show more (${number(rows.length - until)} left)`;
  };
  more.addEventListener("click", () => {
    body.append(...rows.slice(until, until + SHOWN).map((row) => rowOf(row, further)));
    until += SHOWN;
    label();
  });
  label();
  say(plural(rows.length, "rollout"));
  listed = rows;
  return [
    h("h1", {}, "Rollouts"),
    h("div", { class: "filters", role: "search" },
      search,
      h("button", { type: "button", class: "ghost", id: "deep", title: "Opens every conversation and searches it", on: { click: () => searchInside(filter, search.value) } }, "Search conversations"),
      index.runs.length > 1 && choice("run", "Run", any("every run").concat(index.runs.map((run, i) => [String(i), run.label]))),
      choice("outcome", "Outcome", any("every outcome").concat(counted(index.rows, (row) => row.outcome).map(([name, count]) => [name, `${name} (${count})`]))),
      tools.length > 0 && choice("tool", "Tool", any("every tool").concat(tools.map((name) => [name, name]))),
      findings.length > 0 && choice("finding", "Finding", any("any finding or none").concat(findings.map((name) => [name, name]))),
      h("label", {}, h("span", {}, "Reward"), h("span", { class: "range" },
        h("input", { type: "number", step: "0.1", placeholder: "from", value: filter.get("min") || "", "aria-label": "Reward from", on: { change: (event) => go("min", event.target.value) } }),
        h("input", { type: "number", step: "0.1", placeholder: "to", value: filter.get("max") || "", "aria-label": "Reward to", on: { change: (event) => go("max", event.target.value) } }))),
      metrics.length > 0 && choice("add", "Column", any("add a metric").concat(metrics.filter((name) => !further.includes(name)).map((name) => [name, name]))),
      filter.get("columns") && h("button", { type: "button", class: "ghost", on: { click: () => go("columns", "") } }, "Remove metrics"),
      h("button", { type: "button", class: "ghost", id: "csv", on: { click: () => saveCsv(rows, columns) } }, "Save as CSV")),
    h("p", { class: "quiet", id: "found" }, `${plural(rows.length, "rollout")} of ${number(index.rows.length)}`, filter.get("in") !== null && " (conversations searched)", filter.get("from") && [` that went on from turn ${filter.get("from").split(" ").pop()} of one rollout `, h("a", { href: "#/rollouts" }, "(show all)")]),
    h("table", { class: "list" }, h("caption", { class: "hidden" }, "Rollouts"),
      h("thead", {}, h("tr", {}, columns.map(heading))),
      body),
    more,
  ];
}

let timer = 0;
function delayed(act) {
  clearTimeout(timer);
  timer = setTimeout(act, 180);
}

async function searchInside(filter, words) {
  if (!words) return;
  const wanted = JSON.stringify(words.toLowerCase()).slice(1, -1);
  const found = [];
  const button = document.getElementById("deep");
  const numbers = [...new Set(index.rows.map((row) => row.detail).filter((one) => one !== null))];
  for (const [i, one] of numbers.entries()) {
    if (!button.isConnected) return;
    if (i % 20 === 0) button.textContent = `Searching ${percent(i / numbers.length)}`;
    const value = await chunk(one);
    if (value && JSON.stringify(value).toLowerCase().includes(wanted)) found.push(...index.rows.filter((row) => row.detail === one).map((row) => row.id));
  }
  const next = new URLSearchParams(filter);
  next.set("q", words);
  next.set("in", found.join(","));
  history.replaceState(null, "", `#/rollouts?${next}`);
  show();
}

// The attempts of one task beside each other.
async function taskView(key, filter) {
  const all = index.rows.filter((row) => row.key === key);
  const pair = (filter.get("pair") || "").split(",").filter(Boolean);
  const rows = pair.length ? all.filter((row) => pair.includes(row.id)) : all;
  listed = rows;
  const mark = (row) => {
    const next = pair.includes(row.id) ? pair.filter((id) => id !== row.id) : [...pair, row.id].slice(-2);
    return `${taskLink(key)}${next.length ? `?${new URLSearchParams({ pair: next.join(",") })}` : ""}`;
  };
  const figures = index.runs.flatMap((run) => run.sources.flatMap((source) => source.rows.filter((row) => row.key === key).map((row) => ({ run, source, row }))));
  const columns = h("div", { class: "columns", tabindex: "0", role: "region", "aria-label": "Attempts side by side" });
  const view = [
    h("h1", {}, short(String(rows[0]?.task ?? key), 90)),
    h("p", { class: "quiet" }, `${plural(all.length, "attempt")} of task ${key}`),
    all.length > 2 && h("div", { class: "chips", role: "group", "aria-label": "Two attempts side by side" }, all.slice(0, 40).map((row, i) => h("a", { class: "chip", href: mark(row), "aria-current": pair.includes(row.id) ? "true" : false }, `${i + 1}: ${rewardText(row)}`)), pair.length > 0 && h("a", { class: "chip", href: taskLink(key) }, "all")),
    table(["run", "model", "attempts", "reward", "pass rate", "turns", "length", "errors", "band"],
      figures.map(({ run, source, row }) => [run.label, source.model, number(row.attempts), number(row.avg_reward, 2) + (row.reward_stderr === null ? "" : ` ±${fixed(row.reward_stderr, 2)}`), number(row.pass_rate, 2), number(row.mean_turns, 1), number(row.mean_tokens), number(row.errors), h("span", { class: `badge ${{ hard: "bad", medium: "warn", easy: "good" }[row.band] || ""}` }, row.band)]), { class: "numbers", label: "Figures of the task" }),
    columns,
  ];
  for (const row of rows.slice(0, 16)) {
    const found = row.detail === null ? null : await rollout(row.detail);
    const trace = found && (found.traces.find((one) => one.id === row.id) || found.traces[0]);
    columns.append(h("article", { class: "column" },
      h("h2", {}, h("a", { href: rolloutLink(row) }, `${rewardText(row)} · ${row.outcome}`)),
      h("p", { class: "quiet" }, `${index.runs[row.run].label} · ${plural(row.turns || 0, "turn")} · ${seconds(whole_seconds(row))}${row.advantage === null || row.advantage === undefined ? "" : ` · advantage ${fixed(row.advantage, 2)}`}`),
      trace ? steps(trace) : h("p", { class: "quiet" }, "Its conversation is not in the page.")));
  }
  if (rows.length > 16) view.push(h("p", { class: "quiet" }, `The first 16 of ${rows.length} are shown; choose two above.`));
  return view;
}

function steps(trace) {
  return h("ol", { class: "steps" }, trace.nodes.filter((node) => node.sampled).map((node) => {
    const message = node.message || {};
    return h("li", {}, textOf(message.content) && h("p", {}, short(textOf(message.content), 280)),
      (message.tool_calls || []).map((call) => h("p", { class: "toolline" }, h("b", {}, call.name), " ", h("code", {}, short(gist(call), 120)))));
  }));
}
