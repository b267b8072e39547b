// The runs as a whole, what differs between them, and how they change over time.

const card = (title, note, ...body) => h("section", { class: "card" }, h("h2", {}, title, note && h("small", {}, ` ${note}`)), body);
const tile = (name, value, note) => h("div", { class: "tile" }, h("div", { class: "big" }, value), h("div", { class: "name" }, name), note && h("div", { class: "note" }, note));

const OUTCOME_KIND = (row) => (row.counts === "attempt" ? (row.outcome === "timeout" ? "warn" : "good") : row.counts === "unscored" ? "mute" : "bad");

function counted(rows, of) {
  const counts = new Map();
  for (const row of rows) counts.set(of(row), (counts.get(of(row)) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

function figuresTable(run) {
  const ks = [...new Set(run.sources.flatMap((source) => Object.keys(source.pass_at)))].map(Number).sort((a, b) => a - b);
  const head = ["model", "tasks", "rated", "attempts", "reward", `pass ≥ ${index.threshold}`, ...ks.map((k) => `pass@${k}`), "turns", "length", "timeouts", "errors", "unscored"];
  const rows = run.sources.map((source) => [
    h("b", {}, source.model, run.sources.some((other) => other.env !== source.env) && ` @ ${source.env}`),
    number(source.tasks), number(source.tasks_rated), number(source.attempts),
    number(source.avg_reward, 2) + (source.reward_stderr === null ? "" : ` ±${fixed(source.reward_stderr, 2)}`),
    number(source.pass_rate, 2),
    ...ks.map((k) => source.pass_at[k] ? number(source.pass_at[k].value, 2) + (source.pass_at[k].tasks < source.tasks_rated ? "*" : "") : "–"),
    number(source.mean_turns, 1), number(source.mean_tokens), number(source.timed_out), number(source.errors), number(source.unscored),
  ]);
  return [table(head, rows, { class: "numbers", label: `Figures of ${run.label}` }), JSON.stringify(rows.map((row) => row.slice(1))).includes("*") && h("p", { class: "quiet path" }, "* of the tasks with at least k attempts")];
}

// From the first rollout's start to the last one's end, as far as the rollouts say.
function wall(rows) {
  const timed = rows.filter((row) => row.start);
  const [start, end] = [Math.min(...timed.map((row) => row.start)), Math.max(...timed.map((row) => row.start + (whole_seconds(row) || 0)))];
  return timed.length && end > start ? end - start : null;
}

const MILLION = 1e6;
const cost = (row) => (index.prices && row.used ? sum(index.prices.map((price, i) => (price * row.used[i]) / MILLION)) : null);
const dollars = (value) => `$${fixed(value, value < 1 ? 4 : 2)}`;

function tokensTile(rows) {
  // The tries of one episode share its model calls.
  const once = [...new Map(rows.filter((row) => row.used).map((row) => [row.episode, row])).values()];
  const [fresh, cached, sampled] = [0, 1, 2].map((i) => sum(once.map((row) => row.used[i])));
  const price = index.prices ? `${dollars(sum(once.map(cost)))} at the prices given` : "with --prices also what they cost";
  return tile("tokens read, sampled", `${number(fresh + cached)}, ${number(sampled)}`, `${number(cached)} from a cache; ${price}`);
}

// Failures by what they say, numbers aside, the most frequent first.
function failures(rows, at) {
  const groups = new Map();
  for (const row of rows.filter((one) => one.message && one.counts !== "attempt")) {
    const name = `${row.errors.at(-1)}: ${row.message}`.replace(/\d+/g, "N");
    groups.set(name, [...(groups.get(name) || []), row]);
  }
  if (!groups.size) return null;
  const found = [...groups.values()].sort((a, b) => b.length - a.length);
  const link = (row) => `#/rollouts?${new URLSearchParams({ run: String(at), error: failure(row) })}`;
  return card("Errors by message", "numbers in them may differ", h("ul", { class: "failures" }, found.slice(0, 12).map((group) => h("li", {}, h("a", { href: link(group[0]) }, `${number(group.length)} × ${group[0].errors.at(-1)}`), h("p", { class: "quiet" }, group[0].message)))));
}

const TIMES = [["boot", "sandbox", "c5"], ["setup", "setup", "c4"], ["model", "model calls", "c1"], ["rest", "tools and agent", "c2"], ["finalize", "finalize", "c6"], ["scoring", "scoring", "c3"]];
function timeParts(rows) {
  const of = (name) => sum(rows.map((row) => row.times && (name === "rest" ? Math.max(0, (row.times.agent || 0) - (row.times.model || 0)) : row.times[name])));
  return TIMES.map(([key, name, kind]) => ({ name, kind, value: of(key), text: seconds(of(key)) }));
}

function bands(run) {
  const rows = run.sources.flatMap((source) => source.rows);
  const kinds = { hard: "bad", medium: "warn", easy: "good", unrated: "mute" };
  return Object.entries(run.bands).map(([band, condition]) => {
    const count = rows.filter((row) => row.band === band).length;
    return { name: `${band} (${condition})`, kind: kinds[band], value: count, text: number(count) };
  });
}

function runCards(run, at) {
  const rows = index.rows.filter((row) => row.run === at);
  const source = run.sources[0];
  const link = (filter) => `#/rollouts?${new URLSearchParams({ run: String(at), ...filter })}`;
  const tools = new Map();
  for (const row of rows) for (const [name, count] of Object.entries(row.tools || {})) tools.set(name, (tools.get(name) || 0) + count);
  const train = run.trainable;
  const took = wall(rows);
  return [
    h("div", { class: "tiles" },
      tile("mean reward", number(source?.avg_reward, 2), source && source.reward_stderr !== null ? `±${fixed(source.reward_stderr, 2)} over ${plural(source.tasks_rated, "task")}` : null),
      tile(`pass rate (≥ ${index.threshold})`, number(source?.pass_rate, 2), source && `${number(source.passes)} of ${plural(source.attempts, "attempt")}`),
      tile("rollouts", number(rows.length), source && plural(sum(run.sources.map((one) => one.tasks)), "task")),
      tile("errors", number(sum(run.sources.map((one) => one.errors))), `${plural(sum(run.sources.map((one) => one.timed_out)), "timeout")}, ${number(sum(run.sources.map((one) => one.unscored)))} unscored`),
      tile("turns, length", `${number(source?.mean_turns, 1)}`, source && `${number(source.mean_tokens)} tokens long on average`),
      tokensTile(rows),
      took !== null && tile("wall time", seconds(took), `${number((60 * rows.length) / took, 1)} rollouts a minute`),
    ),
    run.warnings.length > 0 && h("ul", { class: "warnings" }, run.warnings.map((line) => h("li", {}, line))),
    card("Figures", "as opencode-difficulty prints them", figuresTable(run), run.sources.flatMap((one) => one.mixtures).map((line) => h("p", { class: "quiet" }, line))),
    failures(rows, at),
    h("div", { class: "grid" },
      card("Reward", `of ${plural(rows.filter((row) => row.reward !== null).length, "attempt")}`, histogram(rows.map((row) => row.reward), "Rewards")),
      card("Outcomes", "", bars(counted(rows, (row) => row.outcome).map(([name, value]) => ({ name, value, kind: OUTCOME_KIND(rows.find((row) => row.outcome === name)), href: link({ outcome: name }) })), { label: "Outcomes" })),
      card("Stop conditions", "why agents stopped", bars(counted(rows.filter((row) => row.stop), (row) => row.stop).map(([name, value]) => ({ name, value, kind: "c4", href: link({ stop: name }) })), { label: "Stop conditions" })),
      card("Where the time went", seconds(sum(timeParts(rows).map((part) => part.value))), stacked(timeParts(rows), "Time")),
      card("Difficulty", "tasks by mean reward", stacked(bands(run), "Difficulty")),
      card("Tools", plural(sum([...tools.values()]), "call"), tools.size ? bars([...tools].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([name, value]) => ({ name, value, kind: "c1", href: link({ tool: name }) })), { label: "Tool calls" }) : h("p", { class: "quiet" }, "No tool was called.")),
      card("What a trainer gets", "as opencode-trainable prints it", trainerSummary(run, train)),
    ),
    run.config && card("Configuration", "as vf-eval saved it", h("pre", { class: "command", tabindex: "0" }, `$ vf-eval @ ${run.config.path} --output-dir outputs/again`), h("details", {}, h("summary", {}, "All options"), lazily(() => fields(run.config.options)))),
  ];
}

function trainerSummary(run, train) {
  return [
    fields({
      "traces that train": `${number(train.trained_traces)} of ${number(train.traces)}`,
      samples: `${number(train.samples)} from ${number(train.branches)} ${train.branches === 1 ? "branch" : "branches"}`,
      "tokens that train": `${number(train.trained_tokens)} beside ${number(train.prompt_tokens)} of context`,
      "with log-probability": number(train.logprobs),
      forks: number(train.forks),
      "groups with spread": `${number(train.groups_with_spread)} of ${number(train.groups)}`,
    }),
    Object.keys(train.unused).length > 0 && bars(Object.entries(train.unused).map(([name, value]) => ({ name: `left out: ${name}`, value, kind: "mute" })), { label: "Traces that do not train" }),
    run.findings.length > 0 && h("details", { class: "findings" }, h("summary", {}, `Findings: ${run.findings.map((finding) => finding.flaw).join(", ")}`),
      run.findings.map((finding) => h("div", { class: "finding" }, h("b", { class: finding.fails ? "badge bad" : "badge" }, `${finding.flaw} ${number(finding.count)}`), " ", finding.what, h("p", { class: "quiet" }, `To do: ${finding.do}`), h("ul", {}, finding.places.map((line) => h("li", {}, line)))))),
  ];
}

function comparisons() {
  if (!index.comparisons.length) return null;
  const label = (key, a) => index.rows.find((row) => row.key === key && row.run === a)?.task ?? key;
  const list = (keys, a) => h("ul", { class: "tasks" }, keys.slice(0, 30).map((key) => h("li", {}, h("a", { href: taskLink(key) }, short(String(label(key, a)), 60)))), keys.length > 30 && h("li", { class: "quiet" }, `and ${keys.length - 30} more`));
  return card("What differs", "mean reward over the tasks that both rated; 95 % bootstrap interval over tasks",
    index.comparisons.map((one) => {
      const sure = one.low !== null && (one.low > 0 || one.high < 0);
      return h("div", { class: "comparison" },
        h("p", {}, h("b", {}, index.runs[one.b].label), " against ", h("b", {}, index.runs[one.a].label), ": ",
          h("span", { class: `delta ${one.mean > 0 ? "up" : one.mean < 0 ? "down" : ""}` }, `${one.mean >= 0 ? "+" : ""}${fixed(one.mean, 3)}`),
          one.low !== null && h("span", { class: "quiet" }, ` [${fixed(one.low, 3)}, ${fixed(one.high, 3)}], ${sure ? "the interval leaves out 0" : "the interval holds 0: this may be chance"}`),
          h("span", { class: "quiet" }, `, ${plural(one.tasks, "task")}`)),
        one.low !== null && intervalBar(one),
        h("div", { class: "grid two" },
          h("details", {}, h("summary", {}, `won: ${number(one.won.length)}`), list(one.won, one.b)),
          h("details", {}, h("summary", {}, `lost: ${number(one.lost.length)}`), list(one.lost, one.b))));
    }));
}

function intervalBar(one) {
  const reach = Math.max(0.05, Math.abs(one.low), Math.abs(one.high));
  const x = (value) => 150 + (140 * value) / reach;
  return s("svg", { viewBox: "0 0 300 26", class: "interval", role: "img", "aria-label": `from ${fixed(one.low, 3)} to ${fixed(one.high, 3)}` },
    s("line", { x1: 150, x2: 150, y1: 2, y2: 24, class: "grid" }),
    s("line", { x1: x(one.low), x2: x(one.high), y1: 13, y2: 13, class: "whisker" }),
    s("circle", { cx: x(one.mean), cy: 13, r: 5, class: `dot ${one.mean >= 0 ? "good" : "bad"}` }));
}

function overview(chosen) {
  const at = Math.min(Math.max(0, chosen), index.runs.length - 1);
  const run = index.runs[at];
  const several = index.runs.length > 1;
  return [
    h("h1", {}, several ? plural(index.runs.length, "run") : run.label),
    h("p", { class: "quiet path" }, several ? "" : `${run.path} · `, `written ${index.written.replace("T", " ").replace("+00:00", " UTC")}`),
    comparisons(),
    several && h("div", { class: "chips", role: "group", "aria-label": "Run" }, index.runs.map((one, i) => h("a", { class: "chip", href: `#/?run=${i}`, "aria-current": i === at ? "true" : false }, one.label))),
    several && h("p", { class: "quiet path" }, run.path),
    runCards(run, at),
    index.turns.length > 0 && card("Kept turns", "the value of a turn is the mean reward of what went on from it, with its 95 % interval; as opencode-turns tree prints it", index.turns.slice(0, 100).map(turnTree)),
    about(),
  ];
}

// A rollout that others went on from: the value of each of its turns, and what went on from those.
function turnTree(one) {
  const row = index.rows.find((other) => other.id === one.trace_id);
  const name = `${short(String(one.task || one.trace_id), 70)} · ${one.reward === null ? "no reward" : `reward ${fixed(one.reward, 2)}`}`;
  return h("div", { class: "turntree" },
    h("p", {}, row ? h("a", { href: rolloutLink(row) }, name) : name),
    h("ul", { class: "bars", "aria-label": "Values of turns" }, one.turns.map((turn) => h("li", {},
      h("a", { href: `#/rollouts?${new URLSearchParams({ from: `${one.trace_id} ${turn.turn}` })}` },
        h("span", { class: "name" }, `turn ${turn.turn}`),
        h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: "bar c1", style: { width: `${100 * Math.min(1, Math.max(0, turn.value ?? 0))}%` } })),
        h("span", { class: "value" }, turn.value === null ? "no reward" : `${fixed(turn.value, 2)}${turn.low === null ? "" : ` [${fixed(turn.low, 2)}, ${fixed(turn.high, 2)}]`} of ${plural(turn.rewards.length, "continuation")}${turn.failed ? `, ${number(turn.failed)} failed` : ""}`)),
      turn.continuations.map(turnTree)))));
}

function about() {
  const masked = Object.entries(index.masked);
  return h("footer", { class: "about" },
    h("p", {}, masked.length ? `${plural(sum(masked.map(([, count]) => count)), "secret")} masked: ${masked.map(([name, count]) => `${name} ${number(count)}`).join(", ")}. ` : "Nothing that looks like a key was found. ",
      h("span", {}, `Rules: ${index.rules.join(", ")}.`)),
    (index.left_out > 0 || index.cut > 0) && h("p", {}, `Left out to keep the page small (--max-mb): ${plural(index.cut, "character")} in the middle of long texts, and the conversations of ${plural(index.left_out, "rollout")}. An attempt of each outcome of each task was kept first; among them errors, forks, and tasks whose rewards differ.`),
    h("p", {}, "This page fetches nothing and runs nothing that stands in a trace."));
}

function overTime() {
  const series = new Map();
  index.runs.forEach((run, at) => {
    if (!series.has(run.series)) series.set(run.series, []);
    series.get(run.series).push([run, at]);
  });
  return [h("h1", {}, "Over time"), [...series].filter(([, runs]) => runs.length > 1).map(([name, runs]) => curvesOf(name, runs))];
}

function curvesOf(name, runs) {
  const labels = runs.map(([run]) => run.label.replace(/ (train|eval)$/, ""));
  const of = (pick) => runs.map(([run, at]) => pick(run, at));
  const first = (pick) => of((run) => (run.sources[0] ? pick(run.sources[0]) : null));
  const ks = [...new Set(runs.flatMap(([run]) => Object.keys(run.sources[0]?.pass_at || {})))].map(Number).sort((a, b) => a - b).slice(0, 5);
  const band = (wanted) => of((run) => sum(run.sources.map((source) => source.rows.filter((row) => row.band === wanted).length)));
  const moved = learned(runs);
  const tasks = (list) => h("ul", { class: "tasks" }, list.slice(0, 40).map(([key, label, from, to]) => h("li", {}, h("a", { href: taskLink(key) }, short(String(label), 50)), h("span", { class: "quiet" }, ` ${number(from, 2)} → ${number(to, 2)}`))), !list.length && h("li", { class: "quiet" }, "none"));
  return h("section", {},
    name && h("h2", { class: "series" }, name),
    h("div", { class: "grid" },
      card("Reward", "mean and standard error", curves(labels, [{ name: "reward", kind: "c1", values: first((source) => source.avg_reward), spread: first((source) => source.reward_stderr) }], { label: "Mean reward", low: 0, high: 1 })),
      card("pass@k", "", curves(labels, ks.map((k, i) => ({ name: `pass@${k}`, kind: `c${i + 1}`, values: first((source) => source.pass_at[k]?.value ?? null) })), { label: "pass@k", low: 0, high: 1 })),
      card("Difficulty bands", "tasks", curves(labels, [["hard", "bad"], ["medium", "warn"], ["easy", "good"]].map(([one, kind]) => ({ name: one, kind, values: band(one) })), { label: "Tasks by band", low: 0, high: 1 })),
      card("Turns", "", curves(labels, [{ name: "turns", kind: "c2", values: first((source) => source.mean_turns) }], { label: "Mean turns", low: 0, high: 1 })),
      card("Length", "tokens of a trace", curves(labels, [{ name: "length", kind: "c4", values: first((source) => source.mean_tokens) }], { label: "Mean length", low: 0, high: 1 })),
      card("Errors and forks", "", curves(labels, [{ name: "errors", kind: "bad", values: of((run) => sum(run.sources.map((source) => source.errors))) }, { name: "timeouts", kind: "warn", values: of((run) => sum(run.sources.map((source) => source.timed_out))) }, { name: "forks", kind: "c3", values: of((run) => run.trainable.forks) }], { label: "Errors, timeouts, forks", low: 0, high: 1 })),
      card("Learned", "hard or medium first, easy last", tasks(moved.learned)),
      card("Forgotten", "easy first or at its best, not at the end", tasks(moved.forgotten)),
    ));
}

function learned(runs) {
  const history = new Map();
  for (const [run] of runs)
    for (const source of run.sources)
      for (const row of source.rows)
        if (row.avg_reward !== null) {
          if (!history.has(row.key)) history.set(row.key, []);
          history.get(row.key).push(row);
        }
  const out = { learned: [], forgotten: [] };
  for (const [key, rows] of history) {
    const [begun, ended] = [rows[0], rows.at(-1)];
    const best = Math.max(...rows.map((row) => row.avg_reward));
    const label = ended.id || ended.name || ended.prompt || key;
    if (rows.length > 1 && begun.band !== "easy" && ended.band === "easy") out.learned.push([key, label, begun.avg_reward, ended.avg_reward]);
    if (rows.length > 1 && ended.band !== "easy" && rows.some((row) => row.band === "easy")) out.forgotten.push([key, label, best, ended.avg_reward]);
  }
  return out;
}
