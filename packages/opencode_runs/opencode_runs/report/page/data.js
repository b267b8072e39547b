// What the page holds: the index, which is read at once, and rollouts, which are opened when somebody looks.

const opened = new Map();

async function unpack(text) {
  const raw = atob(text.trim());
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// The page is shown while it is still being read: its rollouts come last.
const whole = new Promise((done) => {
  if (document.readyState !== "loading") done();
  else document.addEventListener("DOMContentLoaded", () => done());
});

// All rollouts are one text, as the browser reads that faster than thousands of elements: a line for each, with its name.
let packed = null;
async function chunk(name) {
  if (opened.has(name)) return opened.get(name);
  await whole;
  packed ??= new Map(document.getElementById("rollouts").textContent.trim().split("\n").map((line) => [line.slice(0, line.indexOf(" ")), line]));
  const line = packed.get(String(name));
  const value = line ? await unpack(line.slice(line.indexOf(" ") + 1)) : null;
  if (opened.size > 40) opened.delete(opened.keys().next().value);
  opened.set(name, value);
  return value;
}

async function rollout(number) {
  const found = await chunk(number);
  if (!found) return null;
  for (const trace of found.traces) {
    if (typeof trace.tools === "string") trace.tools = await chunk(trace.tools);
    for (const node of trace.nodes) {
      const content = node.message && node.message.content;
      if (content && typeof content === "object" && typeof content.shared === "string")
        node.message.content = await chunk(content.shared);
    }
  }
  return found;
}

// Elements. Text is only ever set as text: no string of a trace is read as markup.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "style") for (const [rule, set] of Object.entries(value)) element.style.setProperty(rule, set);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : plain(String(child)));
  }
  return element;
}

const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Marks that change the direction of text, and control characters, are shown as what they are.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u2069\ufeff]/;
const HIDDEN_ALL = new RegExp(HIDDEN.source, "g");
const visible = (text) =>
  HIDDEN.test(text) ? text.replace(/\r\n/g, "\n").replace(HIDDEN_ALL, (c) => `‹${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`) : text;
const plain = (text) => document.createTextNode(visible(text));

// Numbers as Python prints them: a number that lies just between two is rounded to the even one.
function fixed(value, digits) {
  const text = value.toFixed(digits);
  const exact = value.toFixed(60);
  const end = exact.length - 60 + digits;
  const between = /^50*$/.test(exact.slice(end)) && /[02468]$/.test(exact.slice(0, end).replace(/\.$/, ""));
  return between ? exact.slice(0, end).replace(/\.$/, "") : text;
}
function number(value, digits = 0) {
  if (value === null || value === undefined) return "–";
  const [whole, part] = fixed(value, digits).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
}
const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(0)} %`);
function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.0995) return `${Math.round(value * 1000)} ms`;
  if (value < 100) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  const rounded = Math.round(value);
  return value < 6000 ? `${Math.floor(rounded / 60)} min ${rounded % 60} s` : `${(value / 3600).toFixed(1)} h`;
}
const sum = (values) => values.reduce((total, value) => total + (value || 0), 0);
const short = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
const say = (text) => (document.getElementById("live").textContent = text);
