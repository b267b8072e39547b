// A conversation: messages, tool calls with arguments, result and duration, sub calls, branches.

const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/;

function textOf(content) {
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return content.map((part) => (typeof part === "string" ? part : part && typeof part.text === "string" ? part.text : "")).join("\n");
  return content === null || content === undefined ? "" : JSON.stringify(content);
}

function pictures(content) {
  if (!Array.isArray(content)) return [];
  return content.filter((part) => part && typeof part === "object" && part.type !== "text").map((part) => {
    const address = part.image_url && (part.image_url.url || part.image_url);
    if (typeof address === "string" && PICTURE.test(address)) return h("img", { src: address, alt: "picture in the message", class: "picture" });
    return h("p", { class: "quiet" }, `${part.type || "part"}: `, h("code", {}, short(JSON.stringify(part), 300)));
  });
}

function argumentsOf(call) {
  try {
    const value = typeof call.arguments === "string" ? JSON.parse(call.arguments) : call.arguments;
    return value && typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}

// What a call is about, in a line.
function gist(call) {
  const given = argumentsOf(call);
  if (!given) return String(call.arguments ?? "");
  const first = given.command ?? given.cmd ?? given.filePath ?? given.path ?? given.pattern ?? given.query ?? given.prompt ?? given.url ?? Object.values(given).find((value) => typeof value === "string");
  return String(first ?? JSON.stringify(given));
}

function callBody(call) {
  const given = argumentsOf(call);
  if (!given) return pre(String(call.arguments ?? ""));
  const str = (name) => (typeof given[name] === "string" ? given[name] : null);
  const command = str("command") ?? str("cmd");
  const [before, after] = [str("oldString") ?? str("old_string"), str("newString") ?? str("new_string")];
  const file = str("filePath") ?? str("file_path") ?? str("path");
  const patch = str("patchText") ?? str("patch") ?? str("diff");
  const used = new Set();
  const out = [];
  const take = (...names) => names.forEach((name) => used.add(name));
  if (command !== null) {
    out.push(folded(command, h("pre", { class: "command", tabindex: "0" }, h("span", { class: "prompt", "aria-hidden": "true" }, "$ "), highlight(command))));
    take("command", "cmd", "description");
    if (str("description")) out.unshift(h("p", { class: "quiet" }, str("description")));
  } else if (before !== null && after !== null) {
    out.push(h("p", { class: "file" }, file), difference(before, after));
    take("oldString", "old_string", "newString", "new_string", "filePath", "file_path", "path");
  } else if (patch !== null) {
    out.push(diffText(patch));
    take("patchText", "patch", "diff");
  } else if (file && str("content") !== null) {
    out.push(h("p", { class: "file" }, file), code(str("content"), file.split(".").pop()));
    take("filePath", "file_path", "path", "content");
  }
  const rest = Object.fromEntries(Object.entries(given).filter(([name]) => !used.has(name)));
  if (Object.keys(rest).length) out.push(fields(rest));
  return out;
}

// When each message's call began and ended, and how long each answer's tools took.
function clock(trace) {
  const calls = new Map();
  const ordered = trace.calls.filter((call) => call.start).sort((a, b) => a.start - b.start);
  ordered.forEach((call) => call.node !== null && calls.set(call.node, call));
  const after = (time) => ordered.find((call) => call.start >= time - 1e-4);
  const end = trace.timing && trace.timing.agent && trace.timing.agent.end;
  const tools = new Map();
  for (const [node, call] of calls) {
    const next = call.end && after(call.end);
    const until = next ? next.start : end;
    if (call.end && until && until >= call.end) tools.set(node, [call.end, until]);
  }
  return { calls, tools };
}

function subCalls(found, trace) {
  return found.traces.flatMap((other, at) =>
    other === trace ? [] : other.paths.map((path, branch) => {
      const calls = other.calls.filter((call) => path.includes(call.node));
      return { other, at, branch, path, start: Math.min(...calls.map((call) => call.start || Infinity)), end: Math.max(...calls.map((call) => call.end || 0)), calls };
    }));
}

function firstDifference(trace, path, earlier) {
  let i = 0;
  const said = (node) => JSON.stringify(trace.nodes[node].message);
  while (i < path.length && i < earlier.length && (path[i] === earlier[i] || said(path[i]) === said(earlier[i]))) i++;
  const [here, there] = [path[i], earlier[i]];
  if (here === undefined || there === undefined) return { at: i, here: here === undefined ? "ends here" : "goes on", there: there === undefined ? "ends here" : "goes on" };
  const [a, b] = [said(here), said(there)];
  let k = 0;
  while (k < a.length && k < b.length && a[k] === b[k]) k++;
  const around = (text) => (k > 40 ? "…" : "") + text.slice(Math.max(0, k - 40), k + 120) + (text.length > k + 120 ? "…" : "");
  return { at: i, here: around(a), there: around(b) };
}

function message(trace, node, times, subs, open) {
  const { message: said, sampled } = trace.nodes[node];
  const data = said && typeof said === "object" ? said : { role: "unknown", content: JSON.stringify(said) };
  const role = String(data.role || "unknown");
  const call = times.calls.get(node);
  const text = textOf(data.content);
  const reasoning = data.reasoning_content || data.reasoning;
  const kept = trace.kept.find((one) => one.node === node);
  const tooled = times.tools.get(node);
  const long = role === "system" || (role === "user" && text.length > 8000);
  const head = h("header", {},
    h("span", { class: `role ${role}` }, role === "assistant" && !sampled ? "assistant (not sampled)" : role),
    role === "tool" && data.name && h("b", {}, String(data.name)),
    call && h("span", { class: "quiet" }, [seconds(call.end - call.start), call.in !== null && `${number(call.in)} in`, call.out !== null && `${number(call.out)} out`, call.finish && call.finish !== "stop" && call.finish !== "tool_calls" && call.finish].filter(Boolean).join(" · ")),
    h("a", { class: "anchor quiet", href: `${open}/${node}`, "aria-label": `Link to message ${node}` }, `#${node}`));
  const body = [];
  if (reasoning) body.push(h("details", { class: "reasoning" }, h("summary", {}, `Reasoning (${plural(String(reasoning).length, "character")})`), markdown(String(reasoning))));
  if (text) {
    const shown = role === "tool" ? (looksLikeDiff(text) ? diffText(text) : terminal(text)) : markdown(text);
    body.push(long ? h("details", {}, h("summary", {}, `${plural(text.length, "character")}: ${short(text.split("\n")[0], 80)}`), shown) : shown);
  }
  body.push(pictures(data.content));
  for (const one of data.tool_calls || [])
    body.push(h("section", { class: "call" },
      h("h3", {}, h("span", { class: "toolname" }, String(one.name || "tool")), tooled && h("span", { class: "quiet" }, `${seconds(tooled[1] - tooled[0])} until the next call`)),
      callBody(one)));
  const own = tooled ? subs.filter((sub) => sub.start >= tooled[0] - 0.05 && sub.start <= tooled[1] + 0.05) : [];
  if (own.length) body.push(h("section", { class: "subs" }, h("h3", {}, plural(own.length, "sub call")), h("ul", {}, own.map((sub) => h("li", {}, subLink(sub, open))))));
  if (kept || trace.nodes[node].tokens) body.push(h("details", { class: "tokens" }, h("summary", {}, `Tokens: ${trace.nodes[node].tokens ? `${number(trace.nodes[node].count)}, ${number(trace.nodes[node].trained)} train` : number(kept.logprobs.length)}`), lazily(() => tokens(trace.nodes[node], kept))));
  return h("article", { class: `message ${role} ${sampled ? "sampled" : ""}`, id: `m${node}`, tabindex: "-1" }, head, body);
}

// Made when its `details` is opened.
function lazily(make) {
  const place = h("div", {});
  queueMicrotask(() => {
    const holder = place.closest("details");
    const build = () => !place.firstChild && place.append(make());
    if (holder && !holder.open) holder.addEventListener("toggle", build, { once: true });
    else build();
  });
  return place;
}

function subLink(sub, open) {
  const asked = sub.other.nodes[sub.path.find((node) => (sub.other.nodes[node].message || {}).role === "user") ?? sub.path[0]];
  return h("a", { href: `${open.split("/").slice(0, 3).join("/")}/sub/${sub.at}.${sub.branch}`, class: "sub" },
    h("b", {}, `${sub.other.model || sub.other.seat} `), h("span", { class: "quiet" }, `${seconds(sub.end - sub.start)} · `), short(textOf(asked.message && asked.message.content), 90));
}

// Tokens, those that train shaded by log-probability: the less likely, the stronger. Their text where the trace has it.
function tokens(node, kept) {
  const shade = (value) => ({ "--surprise": String(Math.min(1, Math.max(0, -(value ?? 0) / 5))) });
  if (!node.tokens) {
    return h("div", { class: "tokenline" }, kept.logprobs.map((value, i) =>
      h("span", { class: "token trained", style: shade(value), title: `log-probability ${value}` }, kept.tokens ? String(kept.tokens[i] ?? "") : String(i))));
  }
  const texts = kept && kept.tokens && kept.tokens.length === node.trained ? kept.tokens : null;
  // How many in a row do not train, then do, and so on.
  const mask = node.mask.flatMap((length, number) => Array(length).fill(number % 2 === 1));
  let sampled = 0;
  return h("div", { class: texts ? "tokenline" : "tokenline ids" }, node.tokens.slice(0, 4000).map((id, i) => {
    if (!mask[i]) return h("span", { class: "token", title: "context: does not train" }, `${id}${texts ? " " : ""}`);
    const at = sampled++;
    const advantage = node.advantages ? ` · advantage ${node.advantages[at]}` : "";
    return h("span", { class: "token trained", style: shade(node.logprobs[at]), title: `log-probability ${node.logprobs[at] ?? "missing"}${advantage} · token ${id}` }, texts ? String(texts[at]) : String(id));
  }), node.tokens.length > 4000 && h("span", { class: "quiet" }, ` … ${number(node.tokens.length - 4000)} more`));
}

function conversation(found, trace, path, open, heads = new Map()) {
  const times = clock(trace);
  const subs = subCalls(found, trace);
  const list = h("div", { class: "messages" });
  const step = 120;
  let until = 0;
  const grow = () => {
    const part = path.slice(until, until + step).flatMap((node) => [heads.has(node) && h("h2", { class: "part" }, heads.get(node)), message(trace, node, times, subs, open)].filter(Boolean));
    until += step;
    list.append(...part);
    if (until < path.length) {
      const more = h("button", { type: "button", class: "more" }, `Show more (${number(path.length - until)} messages left)`);
      more.addEventListener("click", () => (more.remove(), grow()));
      list.append(more);
    }
  };
  grow();
  return h("div", { class: "talk" }, outline(trace, path, times, subs, open), list);
}

function outline(trace, path, times, subs, open) {
  const entries = path.filter((node) => (trace.nodes[node].message || {}).role !== "tool" && (trace.nodes[node].message || {}).role !== "system");
  return h("nav", { class: "outline", "aria-label": "Turns" }, h("ol", {}, entries.slice(0, 300).map((node) => {
    const said = trace.nodes[node].message || {};
    const calls = said.tool_calls || [];
    const tooled = times.tools.get(node);
    const own = tooled ? subs.filter((sub) => sub.start >= tooled[0] - 0.05 && sub.start <= tooled[1] + 0.05) : [];
    return h("li", {},
      h("a", { href: `${open}/${node}` }, calls.length ? calls.map((call) => [h("b", {}, String(call.name)), " ", short(gist(call).replace(/\s+/g, " "), 40), " "]) : [h("i", {}, said.role), " ", short(textOf(said.content).replace(/\s+/g, " "), 44)]),
      own.length > 0 && h("ul", {}, own.map((sub) => h("li", {}, subLink(sub, open)))));
  })));
}
