// Text as a person reads it: markdown, code, differences of files, terminal colours. All of it makes elements, never markup.

const LONG_LINES = 40;
const LONG_TEXT = 6000;
const RENDERED = 100000;

function inline(text) {
  const out = [];
  const form = /(`{1,3})([^\0]{0,1500}?[^`])\1(?!`)|\*\*(?=\S)([^*\n]+?)\*\*|\*(?=\S)([^*\n]+?)\*|\[([^\]\n]{1,300})\]\(([^()\s]{1,600})\)/g;
  let from = 0;
  for (const found of text.matchAll(form)) {
    out.push(text.slice(from, found.index));
    from = found.index + found[0].length;
    if (found[2] !== undefined) out.push(h("code", {}, found[2]));
    else if (found[3] !== undefined) out.push(h("strong", {}, found[3]));
    else if (found[4] !== undefined) out.push(h("em", {}, found[4]));
    else out.push(h("span", { class: "address", title: visible(found[6]) }, found[5], h("small", {}, ` ${short(found[6], 60)}`)));
  }
  out.push(text.slice(from));
  return out;
}

function markdown(text) {
  if (text.length > RENDERED) return pre(text);
  const lines = text.split("\n");
  const out = h("div", { class: "prose" });
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) out.append(h("p", {}, inline(paragraph.join("\n"))));
    paragraph = [];
  };
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i];
    const fence = line.match(/^\s{0,3}(```+|~~~+)\s*([\w+#.-]*)/);
    if (fence) {
      flush();
      const body = [];
      while (++i < lines.length && !lines[i].trim().startsWith(fence[1])) body.push(lines[i]);
      out.append(code(body.join("\n"), fence[2]));
      continue;
    }
    const heading = line.match(/^(#{1,6})\s+(.*)$/);
    const item = line.match(/^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/);
    if (heading) {
      flush();
      out.append(h("p", { class: `heading h${heading[1].length}` }, inline(heading[2])));
    } else if (item) {
      flush();
      const indent = Math.min(6, Math.floor(item[1].length / 2));
      out.append(h("p", { class: "item", style: { "--indent": String(indent) } }, h("span", { class: "bullet" }, item[2] ? `${item[2]}.` : "•"), h("span", {}, inline(item[3]))));
    } else if (/^\s*\|.*\|\s*$/.test(line) && /^\s*\|[\s:|-]+\|\s*$/.test(lines[i + 1] || "")) {
      flush();
      const cells = (row) => row.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
      const head = cells(line);
      const rows = [];
      for (i += 2; i < lines.length && /^\s*\|.*\|\s*$/.test(lines[i]); i++) rows.push(cells(lines[i]));
      i--;
      out.append(table(head, rows.map((row) => row.map((cell) => inline(cell)))));
    } else if (/^\s*>/.test(line)) {
      flush();
      out.append(h("blockquote", {}, inline(line.replace(/^\s*>\s?/, ""))));
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
      flush();
      out.append(h("hr", {}));
    } else if (!line.trim()) flush();
    else paragraph.push(line);
  }
  flush();
  return out;
}

const KEYWORDS = new Set(
  ("and as assert async await break case catch class const continue def del do done elif else end enum esac except export extends " +
    "False false fi finally fn for from func function global if impl import in instanceof interface is lambda let loop match mod module mut " +
    "new nil None nonlocal not null or package pass pub public private protected raise return self static struct super switch then this throw " +
    "trait True true try type typeof undefined use var void where while with yield echo exit local set print int float str bool").split(" "),
);

const SLASHED = /^(?:js|jsx|ts|tsx|mjs|javascript|typescript|c|h|cc|cpp|hpp|java|go|rs|rust|swift|kt|cs|php|scala|css)$/;

function highlight(text, language) {
  if (text.length > 60000) return [text];
  const form = SLASHED.test(language || "")
    ? /(\/\/[^\n]*|\/\*[\s\S]*?\*\/)|("""[\s\S]*?"""|'''[\s\S]*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)|\b(\d[\w.]*)\b|\b([A-Za-z_]\w*)\b/g
    : /((?<![\w$&{])#[^\n]*)|("""[\s\S]*?"""|'''[\s\S]*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)|\b(\d[\w.]*)\b|\b([A-Za-z_]\w*)\b/g;
  const out = [];
  let from = 0;
  for (const found of text.matchAll(form)) {
    const kind = found[1] ? "com" : found[2] ? "str" : found[3] ? "num" : KEYWORDS.has(found[4]) ? "key" : null;
    if (!kind) continue;
    out.push(text.slice(from, found.index), h("span", { class: kind }, found[0]));
    from = found.index + found[0].length;
  }
  out.push(text.slice(from));
  return out;
}

function folded(text, body, label) {
  const lines = text.split("\n").length;
  const block = h("div", { class: "block" }, body);
  if (lines <= LONG_LINES && text.length <= LONG_TEXT) return block;
  block.classList.add("folded");
  const more = h("button", { type: "button", class: "more", "aria-expanded": "false" }, `Show all of ${label || "it"} (${plural(lines, "line")}, ${plural(text.length, "character")})`);
  more.addEventListener("click", () => {
    const closed = block.classList.toggle("folded");
    more.setAttribute("aria-expanded", String(!closed));
    more.textContent = closed ? "Show all" : "Show less";
  });
  return h("div", {}, block, more);
}

const pre = (text, kind) => folded(text, h("pre", { class: kind || "", tabindex: "0" }, text));

function code(text, language) {
  if (/^(diff|patch)$/.test(language || "") || looksLikeDiff(text)) return diffText(text);
  return folded(text, h("pre", { class: "code", tabindex: "0" }, h("code", {}, highlight(text, language))));
}

const looksLikeDiff = (text) => /^(?:diff --git |--- [^\n]*\n\+\+\+ |@@ -\d|\*\*\* Begin Patch)/m.test(text.slice(0, 4000));

const DIFF_CLASS = { "+": "add", "-": "del", "@": "hunk", "*": "hunk" };
function diffText(text) {
  const lines = text.split("\n").map((line) => h("span", { class: `line ${DIFF_CLASS[line[0]] || ""}` }, line || " "));
  return folded(text, h("pre", { class: "diff", tabindex: "0" }, lines));
}

// The lines of two texts, as a difference: the longest common part of what lies between equal ends.
function difference(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const x = a.slice(head, a.length - tail);
  const y = b.slice(head, b.length - tail);
  const out = a.slice(Math.max(0, head - 3), head).map((line) => ` ${line}`);
  if (x.length * y.length > 250000) out.push(...x.map((line) => `-${line}`), ...y.map((line) => `+${line}`));
  else {
    const rows = Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1));
    for (let i = x.length - 1; i >= 0; i--)
      for (let j = y.length - 1; j >= 0; j--)
        rows[i][j] = x[i] === y[j] ? rows[i + 1][j + 1] + 1 : Math.max(rows[i + 1][j], rows[i][j + 1]);
    let i = 0;
    let j = 0;
    while (i < x.length || j < y.length) {
      if (i < x.length && j < y.length && x[i] === y[j]) out.push(` ${x[i++]}`, ...(j++, []));
      else if (i < x.length && (j >= y.length || rows[i + 1][j] >= rows[i][j + 1])) out.push(`-${x[i++]}`);
      else out.push(`+${y[j++]}`);
    }
  }
  out.push(...a.slice(a.length - tail, a.length - tail + 3).map((line) => ` ${line}`));
  return diffText(out.join("\n"));
}

// Terminal output: colours and weights of SGR sequences; other sequences are left out.
function terminal(text) {
  if (!text.includes("\u001b[") && !text.includes("\u001b]")) return pre(text, "term");
  const body = h("pre", { class: "term", tabindex: "0" });
  let now = { color: "", back: "", bold: false, under: false };
  for (const part of text.split(/(\u001b\[[0-9;:?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\))/)) {
    const code = part.match(/^\u001b\[([0-9;]*)m$/);
    if (code) now = graphic(now, code[1]);
    else if (part && !part.startsWith("\u001b[") && !part.startsWith("\u001b]")) {
      const classes = [now.color && `a${now.color}`, now.back && `b${now.back}`, now.bold && "bold", now.under && "under"].filter(Boolean).join(" ");
      body.append(classes ? h("span", { class: classes }, part) : plain(part));
    }
  }
  return folded(text, body);
}

function graphic(now, codes) {
  const next = { ...now };
  const list = (codes || "0").split(";").map(Number);
  for (let i = 0; i < list.length; i++) {
    const c = list[i];
    if (c === 0) Object.assign(next, { color: "", back: "", bold: false, under: false });
    else if (c === 1) next.bold = true;
    else if (c === 22) next.bold = false;
    else if (c === 4) next.under = true;
    else if (c === 24) next.under = false;
    else if (c >= 30 && c <= 37) next.color = String(c - 30);
    else if (c >= 90 && c <= 97) next.color = String(c - 90);
    else if (c === 39) next.color = "";
    else if (c >= 40 && c <= 47) next.back = String(c - 40);
    else if (c === 49) next.back = "";
    else if (c === 38 || c === 48) {
      const index = list[i + 1] === 5 ? list[i + 2] : 7;
      next[c === 38 ? "color" : "back"] = String((index || 0) % 8);
      i += list[i + 1] === 5 ? 2 : 4;
    }
  }
  return next;
}

function table(head, rows, options = {}) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.label || "Table" },
    h("table", { class: options.class || "" },
      options.label && h("caption", { class: "hidden" }, options.label),
      h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, cell)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
}

// A JSON value as a list of names and values.
function fields(value, depth = 0) {
  if (value === null || typeof value !== "object") return h("span", { class: typeof value }, typeof value === "string" ? value : JSON.stringify(value));
  if (depth > 5) return pre(JSON.stringify(value, null, 1), "code");
  const entries = Object.entries(value);
  if (!entries.length) return h("span", { class: "quiet" }, Array.isArray(value) ? "empty list" : "nothing");
  return h("dl", { class: "fields" }, entries.slice(0, 200).map(([name, one]) => [
    h("dt", {}, name),
    h("dd", {}, typeof one === "string" && (one.includes("\n") || one.length > 200) ? pre(one) : fields(one, depth + 1)),
  ]), entries.length > 200 && h("dd", { class: "quiet" }, `… ${number(entries.length - 200)} more`));
}
