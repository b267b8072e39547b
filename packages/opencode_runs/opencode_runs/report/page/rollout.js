// One rollout: its conversation, when what happened, why it scored, and what a trainer gets.

const TABS = [["", "Conversation"], ["timeline", "Timeline"], ["scoring", "Scoring"], ["trainer", "Trainer"], ["task", "Task & settings"]];

async function rolloutView(id, rest) {
  const row = index.rows.find((one) => one.id === id) || index.rows.find((one) => one.episode === id) || index.rows.find((one) => one.id.startsWith(id) || one.episode.startsWith(id));
  if (!row) return [h("h1", {}, "No such rollout"), h("p", {}, `The page has no rollout ${id}.`)];
  const found = row.detail === null ? null : await rollout(row.detail);
  const base = rolloutLink(row);
  const view = [heading(row, found)];
  if (!found) return view.concat(h("p", { class: "quiet" }, "Its conversation was left out to keep the page small (--max-mb)."));
  const main = found.traces.find((trace) => trace.id === row.id) || found.traces[0];
  if (rest[0] === "sub") return view.concat(subView(found, main, rest[1], base));
  const tab = TABS.some(([name]) => name && name === rest[0]) ? rest[0] : "";
  view.push(h("nav", { class: "subtabs", "aria-label": "Parts of the rollout" }, TABS.map(([name, label]) => h("a", { href: name ? `${base}/${name}` : base, "aria-current": name === tab ? "page" : false }, label, name === "trainer" && row.findings?.length > 0 && h("span", { class: "dotmark", title: "findings" })))));
  if (!main) return view.concat(errorsOf(found.errors, "Errors of the episode"));
  if (tab === "timeline") view.push(timeline(found, main, base));
  else if (tab === "scoring") view.push(scoring(found, main));
  else if (tab === "trainer") view.push(trainer(found, main, row));
  else if (tab === "task") view.push(taskTab(found, main));
  else view.push(talk(found, main, base, rest));
  return view;
}

function heading(row, found) {
  const at = listed.indexOf(row);
  const step = (to, label, mark) => to >= 0 && to < listed.length && h("a", { class: "ghost", href: rolloutLink(listed[to]), "aria-label": label, title: label }, mark);
  return h("div", { class: "heading" },
    h("p", { class: "crumbs" }, h("a", { href: listed.length ? "#/rollouts" + lastFilter : "#/rollouts" }, "Rollouts"), " / ", h("a", { href: taskLink(row.key) }, "attempts of this task"), h("span", { class: "steps2" }, at >= 0 && [step(at - 1, "Previous rollout ([)", "‹"), step(at + 1, "Next rollout (])", "›")])),
    h("h1", {}, short(String(row.task), 120)),
    h("div", { class: "facts" },
      h("span", { class: `reward large ${row.reward === null ? "none" : row.reward >= index.threshold - 1e-9 ? "good" : row.reward > 0 ? "warn" : "bad"}` }, rewardText(row)),
      h("span", { class: `badge ${OUTCOME_KIND(row)}` }, row.outcome),
      row.stop && row.stop !== "agent_completed" && h("span", { class: "badge" }, row.stop),
      h("span", {}, row.model || ""), h("span", {}, plural(row.turns || 0, "turn")), row.subs > 0 && h("span", {}, plural(row.subs, "sub turn")),
      row.branch && h("a", { href: `#/r/${encodeURIComponent(row.branch.trace_id)}` }, `${row.branch.resumed ? "resumed at" : "went on from"} turn ${row.branch.turn} of another`),
      h("span", {}, `${number(row.tokens)} tokens long`), h("span", {}, seconds(whole_seconds(row))), index.runs.length > 1 && h("span", {}, index.runs[row.run].label),
      h("button", { type: "button", class: "ghost", on: { click: (event) => navigator.clipboard?.writeText(location.href).then(() => (event.target.textContent = "Copied")) } }, "Copy link")));
}

function talk(found, trace, base, rest) {
  const story = rest[0] !== "branch" && trace.stories[0];
  const chosen = rest[0] === "branch" ? Number(rest[1]) || 0 : 0;
  const at = Math.min(chosen, trace.paths.length - 1);
  const path = story ? story.flatMap((part) => part.nodes) : trace.paths[at] || trace.nodes.map((_, i) => i);
  const open = rest[0] === "branch" && (at > 0 || trace.stories.length) ? `${base}/branch/${at}` : `${base}/m`;
  return [
    trace.errors.length > 0 && errorsOf(trace.errors, "Errors"),
    trace.wrong_types && h("p", { class: "warnings" }, `This trace holds other types than verifiers writes: ${trace.wrong_types}`),
    trace.paths.length > 1 && branches(trace, base, story ? -1 : at),
    conversation(found, trace, path, open, story ? headings(story) : new Map()),
  ];
}

// What stands before the first message of each section and each summary.
function headings(story) {
  const count = { section: 0, summary: 0 };
  return new Map(story.filter((part) => part.nodes.length).map((part) => [part.nodes[0], `${part.kind === "section" ? "Section" : "Summary"} ${(count[part.kind] += 1)}`]));
}

// What each branch is of a conversation that was compacted.
function partsOf(trace) {
  return new Map(trace.stories.flat().map((part) => [part.branch, part.kind]));
}

function branches(trace, base, at) {
  const notes = trace.trainer.fork_notes || [];
  const parts = partsOf(trace);
  const why = [parts.size > 0 && "the history was compacted", (trace.trainer.forks > 0 || !parts.size) && "the history forked"].filter(Boolean).join(", and ");
  const whole = parts.size > 0 && h("a", { class: "chip", href: base, "aria-current": at < 0 ? "true" : false }, "as one story");
  const fork = at > 0 ? at : trace.paths.findIndex((_, i) => i > 0 && !parts.has(i));
  return h("section", { class: "card" }, h("h2", {}, `${trace.paths.length} branches`, h("small", {}, ` ${why}`)),
    h("div", { class: "chips" }, whole, trace.paths.map((path, i) => h("a", { class: "chip", href: i || parts.size ? `${base}/branch/${i}` : base, "aria-current": i === at ? "true" : false }, `${parts.get(i) || "branch"} ${i} · ${path.length}`))),
    notes.map((note) => h("p", { class: "quiet" }, note)),
    fork > 0 && !parts.has(fork) && forkOf(trace, fork));
}

function forkOf(trace, at) {
  const found = firstDifference(trace, trace.paths[at], trace.paths[at - 1]);
  return h("div", { class: "fork" }, h("p", {}, `Branch ${at} parts from branch ${at - 1} at message ${found.at}:`),
    h("pre", { class: "diff" }, h("span", { class: "line del" }, `${at - 1}: ${found.there}`), h("span", { class: "line add" }, `${at}: ${found.here}`)));
}

function subView(found, main, place, base) {
  const [at, branch] = String(place).split(".").map(Number);
  const trace = found.traces[at];
  const path = trace && trace.paths[branch];
  if (!path) return h("p", { class: "quiet" }, "No such sub call.");
  const others = subCalls(found, main).filter((sub) => sub.other === trace);
  return [
    h("p", { class: "crumbs" }, h("a", { href: base }, "main conversation"), ` / seat ${trace.seat}, ${trace.model || ""}`),
    h("div", { class: "chips" }, others.map((sub) => h("a", { class: "chip", href: `${base}/sub/${sub.at}.${sub.branch}`, "aria-current": sub.branch === branch ? "true" : false }, `sub call ${sub.branch + 1}`))),
    errorsOf(trace.errors, "Errors"),
    conversation({ traces: [trace] }, trace, path, `${base}/m`),
  ];
}

function errorsOf(errors, title) {
  if (!errors || !errors.length) return null;
  return h("section", { class: "card errors" }, h("h2", {}, title), errors.map((error) => h("div", {}, h("p", {}, h("b", { class: "badge bad" }, error.type), error.status_code && ` ${error.status_code}`), error.message && terminal(textOf(error.message)), error.traceback && h("details", {}, h("summary", {}, "Traceback"), pre(textOf(error.traceback))))));
}

// The waterfall.
function timeline(found, trace, base) {
  const rows = [];
  const phases = trace.timing || {};
  const names = { boot: "sandbox", setup: "setup", agent: "agent", finalize: "finalize", scoring: "scoring" };
  const kinds = { boot: "c5", setup: "c4", agent: "c2 pale", finalize: "c6", scoring: "c3" };
  for (const [phase, name] of Object.entries(names)) {
    const span = phases[phase];
    if (span && span.start && span.end >= span.start) rows.push({ name, kind: kinds[phase], start: span.start, end: span.end, strong: true });
  }
  const times = clock(trace);
  const inner = [];
  const begun = Math.min(...trace.calls.map((call) => call.start || Infinity));
  if (phases.agent && begun > phases.agent.start && Number.isFinite(begun)) inner.push({ name: "agent starts", kind: "mute", start: phases.agent.start, end: begun, note: "until its first model call" });
  trace.calls.forEach((call, i) => call.start && inner.push({ name: `model call ${i + 1}`, kind: call.error ? "bad" : "c1", start: call.start, end: call.end || call.start, href: call.node === null ? null : `${base}/m/${call.node}`, note: call.error ? "failed" : `${number(call.in)} in, ${number(call.out)} out` }));
  for (const [node, [start, end]] of times.tools) {
    const calls = (trace.nodes[node].message || {}).tool_calls || [];
    if (calls.length) inner.push({ name: calls.map((call) => call.name).join(", "), kind: "c2", start, end, href: `${base}/m/${node}`, note: short(gist(calls[0]).replace(/\s+/g, " "), 60) });
  }
  for (const sub of subCalls(found, trace)) if (sub.end && Number.isFinite(sub.start)) inner.push({ name: `↳ sub call ${sub.branch + 1}`, kind: "c6", start: sub.start, end: sub.end, href: `${base}/sub/${sub.at}.${sub.branch}`, note: sub.other.model });
  inner.sort((a, b) => a.start - b.start);
  const shown = rows.filter((row) => row.start <= (phases.agent?.start ?? Infinity)).concat(inner.slice(0, 400), rows.filter((row) => row.start > (phases.agent?.start ?? Infinity)));
  if (!shown.length) return h("p", { class: "quiet" }, "The trace has no times.");
  const first = Math.min(...shown.map((row) => row.start));
  const length = Math.max(1e-3, Math.max(...shown.map((row) => row.end)) - first);
  return h("section", { class: "card" },
    h("h2", {}, "Timeline", h("small", {}, ` ${seconds(length)} in all; a tool's time runs until the next model call`)),
    stacked(timeParts([{ times: { ...Object.fromEntries(Object.keys(names).map((phase) => [phase, phases[phase] ? phases[phase].end - phases[phase].start : 0])), model: sum(trace.calls.map((call) => (call.end || 0) - (call.start || 0))) } }]), "Time"),
    h("ol", { class: "waterfall" }, shown.map((row) => {
      const inside = [h("span", { class: "name" }, row.name), h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: `bar ${row.kind}`, style: { left: `min(calc(100% - 3px), ${(100 * (row.start - first)) / length}%)`, width: `max(3px, ${(100 * (row.end - row.start)) / length}%)` } })), h("span", { class: "value" }, seconds(row.end - row.start)), h("span", { class: "quiet gist" }, row.note || "")];
      return h("li", { class: row.strong ? "strong" : "" }, row.href ? h("a", { href: row.href }, inside) : h("div", {}, inside));
    })),
    inner.length > 400 && h("p", { class: "quiet" }, `The first 400 of ${inner.length} are shown.`));
}

function scoring(found, trace) {
  const info = trace.info && typeof trace.info === "object" ? trace.info : {};
  const rewards = Object.entries(trace.rewards || {});
  const data = found.task.data || {};
  const agent = info.agent && typeof info.agent === "object" ? info.agent : {};
  const rest = Object.fromEntries(Object.entries(info).filter(([name]) => !["agent", "verify", "setup", "simulation"].includes(name)));
  return [
    h("section", { class: "card" }, h("h2", {}, "Reward"),
      rewards.length ? table(["rubric", "score", "weight", "counts"], rewards.map(([name, reward]) => [name, reward ? number(reward.score, 3) : "not computed", reward ? number(reward.weight, 2) : "–", reward && reward.score !== null ? number(reward.score * reward.weight, 3) : "–"]), { class: "numbers", label: "Rewards" }) : h("p", { class: "quiet" }, "No reward was computed.")),
    errorsOf(trace.errors, "Errors"), errorsOf(found.errors, "Errors of the episode"),
    commands("Setup commands", info.setup, data.setup), commands("Verify commands", info.verify, data.verify),
    info.simulation && world(info.simulation),
    Object.keys(rest).length > 0 && h("section", { class: "card" }, h("h2", {}, "Why", h("small", {}, " what rubrics and environment noted")), fields(rest)),
    h("section", { class: "card" }, h("h2", {}, "Agent"), fields(Object.fromEntries(Object.entries(agent).filter(([name]) => name !== "log_tail")))),
    agent.log_tail && h("section", { class: "card" }, h("h2", {}, "End of the agent's log"), terminal(textOf(agent.log_tail))),
    h("section", { class: "card" }, h("h2", {}, "Metrics"), table(["metric", "value"], Object.entries(trace.metrics || {}).map(([name, value]) => [name, value === null ? "–" : String(value)]), { class: "numbers narrow", label: "Metrics" })),
  ];
}

function commands(title, records, asked) {
  const list = Array.isArray(records) ? records : (Array.isArray(asked) ? asked : asked ? [asked] : []).map((command) => ({ command }));
  if (!list.length) return null;
  return h("section", { class: "card" }, h("h2", {}, title), list.map((one) => h("div", { class: "ran" },
    h("p", {}, one.exit_code === undefined ? h("span", { class: "badge" }, "as the task says") : h("span", { class: `badge ${one.exit_code === 0 && !one.timed_out ? "good" : "bad"}` }, one.timed_out ? "timed out" : `exit ${one.exit_code}`), one.duration !== undefined && h("span", { class: "quiet" }, ` ${seconds(one.duration)}`)),
    code(textOf(one.command), "sh"), one.stdout && terminal(textOf(one.stdout)), one.stderr && [h("p", { class: "quiet" }, "stderr"), terminal(textOf(one.stderr))])));
}

function world(ledger) {
  const whole = ledger.summary || {};
  let total = 0;
  return h("section", { class: "card" }, h("h2", {}, `World ${whole.world ?? ""}`, h("small", {}, ` seed ${whole.seed ?? "none"}, ${plural(whole.steps || 0, "step")}, total reward ${number(whole.total_reward, 2)}`)),
    whole.error && h("p", { class: "warnings" }, textOf(whole.error)),
    table(["step", "tool", "arguments", "observation", "reward", "total", "ends"], (ledger.steps || []).slice(0, 500).map((step) => {
      total += step.reward || 0;
      return [number(step.step), h("b", {}, step.tool), h("code", {}, short(JSON.stringify(step.arguments), 120)), short(textOf(step.observation), 240), number(step.reward, 2), number(total, 2), step.terminated ? "terminated" : step.truncated ? "truncated" : ""];
    }), { label: "Ledger" }),
    h("details", {}, h("summary", {}, "Summary"), fields(whole)));
}

function trainer(found, trace, row) {
  const figures = trace.trainer;
  const group = index.runs[row.run].groups.find((one) => one.group === (found.group || row.key));
  return [
    h("section", { class: "card" }, h("h2", {}, "What a trainer gets", h("small", {}, " as opencode-trainable prints it")),
      figures.unused_because && h("p", {}, h("span", { class: "badge bad" }, "does not train"), ` ${figures.unused_because}`),
      fields({ advantage: row.advantage === null || row.advantage === undefined ? "none" : fixed(row.advantage, 3), "of the group": group ? `${plural(group.rollouts, "rollout")}, mean reward ${number(group.mean_reward, 2)}, spread ${number(group.spread, 2)}` : "none", samples: figures.sections ? `${figures.samples}: ${plural(figures.sections, "section")}, ${number(figures.summaries)} ${figures.summaries === 1 ? "summary" : "summaries"}` : figures.samples, branches: figures.branches, "tokens that train": figures.trained_tokens === null ? "no token data" : number(figures.trained_tokens), "context tokens": figures.prompt_tokens === null ? "no token data" : number(figures.prompt_tokens), "longest sample": number(figures.longest), "with log-probability": number(figures.logprobs), "sampled, as the endpoint counted": number(figures.sampled_tokens), forks: figures.forks }),
      Object.entries(figures.findings || {}).map(([name, text]) => h("p", {}, h("span", { class: "badge bad" }, name), ` ${text}`)),
      (figures.fork_notes || []).map((note) => h("p", { class: "quiet" }, note))),
    trace.paths.length > Math.max(1, partsOf(trace).size) && h("section", { class: "card" }, h("h2", {}, "Branches"), trace.paths.map((_, i) => i).filter((i) => i > 0 && !partsOf(trace).has(i)).slice(0, 11).map((i) => forkOf(trace, i))),
    found.traces.map((one) => samplesOf(one)),
  ];
}

function samplesOf(trace) {
  if (!trace.nodes.some((node) => node.count)) return trace.kept.length ? h("section", { class: "card" }, h("h2", {}, `Seat ${trace.seat}: log-probabilities of the endpoint`), trace.kept.map((one) => tokens(trace.nodes[one.node] || {}, one))) : null;
  return h("section", { class: "card" }, h("h2", {}, `Seat ${trace.seat}: tokens`, h("small", {}, " the stronger the shade, the less likely the token was; grey is context")), trace.samples.map((sample) => {
    const path = trace.paths[sample.branch];
    return h("div", { class: "sample" }, h("p", {}, h("b", {}, `Sample of branch ${sample.branch}${sample.kind === "conversation" ? "" : `, a ${sample.kind}`}`), `: ${number(sample.tokens)} tokens, ${number(sample.trained)} train`),
      h("div", { class: "strip", role: "img", "aria-label": `${sample.trained} of ${sample.tokens} tokens train` }, path.filter((node) => trace.nodes[node].count).map((node) => h("span", { class: sample.trains.includes(node) ? "c1" : "mute", title: `message ${node}: ${number(trace.nodes[node].count)} tokens`, style: { "flex-grow": String(trace.nodes[node].count) } }))),
      path.filter((node) => trace.nodes[node].tokens && sample.trains.includes(node)).slice(0, 50).map((node) => h("details", { class: "tokens", open: sample.trained <= 600 }, h("summary", {}, `message ${node}: ${short(textOf((trace.nodes[node].message || {}).content).replace(/\s+/g, " "), 70)}`), lazily(() => tokens(trace.nodes[node], trace.kept.find((one) => one.node === node))))));
  }));
}

function taskTab(found, trace) {
  const data = found.task.data || {};
  const kind = { harness: trace.harness, runtime: trace.runtime, model: trace.model, sampling: trace.sampling, verifiers: trace.verifiers, seat: trace.seat, environment: found.env, group: found.group, episode: found.id, trace: trace.id };
  return [
    h("section", { class: "card" }, h("h2", {}, "Task"), fields(data)),
    h("section", { class: "card" }, h("h2", {}, "Settings"), fields(Object.fromEntries(Object.entries(kind).filter(([, value]) => value)))),
    Array.isArray(trace.tools) && h("section", { class: "card" }, h("h2", {}, `${plural(trace.tools.length, "tool")} offered`), trace.tools.map((tool) => h("details", {}, h("summary", {}, String(tool.name)), markdown(textOf(tool.description))))),
  ];
}
