// Charts as SVG and as bars, each with its numbers as text beside it.

// The longest first; of many, most stand behind a fold.
function bars(items, options = {}) {
  const most = Math.max(1e-12, ...items.map((item) => item.value));
  const list = (some, label) => h("ul", { class: "bars", "aria-label": label }, some.map((item) => {
    const inside = [
      h("span", { class: "name" }, item.name),
      h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: `bar ${item.kind || ""}`, style: { width: `${Math.max(item.value > 0 ? 0.5 : 0, (100 * item.value) / most)}%` } })),
      h("span", { class: "value" }, item.text ?? number(item.value)),
    ];
    return h("li", {}, item.href ? h("a", { href: item.href }, inside) : inside);
  }));
  if (items.length <= 8) return list(items, options.label || "");
  return [list(items.slice(0, 6), options.label || ""), h("details", { class: "numbers" }, h("summary", {}, `${number(items.length - 6)} more`), list(items.slice(6), `More: ${options.label || ""}`))];
}

function stacked(parts, label) {
  const total = sum(parts.map((part) => part.value)) || 1;
  const shown = parts.filter((part) => part.value > 0);
  return h("div", { class: "stacked" },
    h("div", { class: "strip", role: "img", "aria-label": `${label}: ${shown.map((part) => `${part.name} ${part.text}`).join(", ")}` },
      shown.map((part) => h("span", { class: part.kind, title: `${part.name}: ${part.text}`, style: { "flex-grow": String(part.value / total) } }))),
    h("ul", { class: "legend" }, shown.map((part) => h("li", {}, h("i", { class: part.kind, "aria-hidden": "true" }), part.name, " ", h("b", {}, part.text)))));
}

function histogram(values, label) {
  const numbers = values.filter((value) => value !== null && value !== undefined);
  if (!numbers.length) return h("p", { class: "quiet" }, "No attempt was scored.");
  const low = Math.min(0, ...numbers);
  const high = Math.max(1, ...numbers);
  const count = 10;
  const bins = Array.from({ length: count }, () => 0);
  for (const value of numbers) bins[Math.min(count - 1, Math.floor(((value - low) / (high - low)) * count + 1e-9))]++;
  const most = Math.max(...bins);
  const edge = (i) => low + ((high - low) * i) / count;
  const name = (i) => `${edge(i).toFixed(1)} to ${edge(i + 1).toFixed(1)}`;
  return h("figure", { class: "chart" },
    s("svg", { viewBox: "0 0 320 132", role: "img", "aria-label": `${label}: ${bins.map((bin, i) => (bin ? `${name(i)}: ${bin}` : "")).filter(Boolean).join("; ")}` },
      s("line", { x1: 8, x2: 312, y1: 108.5, y2: 108.5, class: "axis" }),
      bins.map((bin, i) => {
        const height = bin ? Math.max(2, (84 * bin) / most) : 0;
        return [
          s("rect", { x: 10 + i * 30, y: 108 - height, width: 26, height, rx: 3, class: `bin ${edge(i + 1) >= index.threshold - 1e-9 && (i === count - 1 || edge(i + 1) > index.threshold + 1e-9) ? "high" : edge(i) < 0.2 * index.threshold - 1e-9 ? "low" : "mid"}` }, s("title", {}, `${name(i)}: ${bin}`)),
          bin > 0 && s("text", { x: 23 + i * 30, y: 103 - height, class: "count" }, number(bin)),
        ];
      }),
      [0, 5, 10].map((i) => s("text", { x: 8 + i * 30.4, y: 125, class: "tick", "text-anchor": i === 0 ? "start" : i === 10 ? "end" : "middle" }, edge(i).toFixed(1)))),
  );
}

// Lines over the runs of a series; a line is {name, kind, values, spread}.
function curves(labels, lines, options = {}) {
  const all = lines.flatMap((line) => line.values.flatMap((value, i) => (value === null || value === undefined ? [] : [value - (line.spread?.[i] || 0), value + (line.spread?.[i] || 0)])));
  if (!all.length) return h("p", { class: "quiet" }, "Nothing was measured.");
  const low = Math.min(options.low ?? Infinity, ...all);
  const high = Math.max(options.high ?? -Infinity, ...all, low + 1e-9);
  const [left, right, top, bottom] = [44, 12, 10, 24];
  const [width, height] = [400, 190];
  const x = (i) => left + ((width - left - right) * i) / Math.max(1, labels.length - 1);
  const y = (value) => top + (height - top - bottom) * (1 - (value - low) / (high - low));
  const digits = high - low < 0.05 ? 3 : high - low < 5 ? 2 : 0;
  const ticks = [0, 0.5, 1].map((part) => low + part * (high - low));
  const few = Math.max(1, Math.ceil(labels.length / 6));
  return h("figure", { class: "chart" },
    s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${options.label}: ${lines.map((line) => `${line.name} from ${number(line.values[0], digits)} to ${number(line.values.at(-1), digits)}`).join("; ")}` },
      ticks.map((tick) => [
        s("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: "grid" }),
        s("text", { x: left - 6, y: y(tick) + 4, class: "tick", "text-anchor": "end" }, number(tick, digits)),
      ]),
      labels.map((label, i) => ((i % few === 0 && i < labels.length - few / 2 - 1) || i === labels.length - 1) && s("text", { x: x(i), y: height - 6, class: "tick", "text-anchor": i === 0 ? "start" : i === labels.length - 1 ? "end" : "middle" }, short(label, 14))),
      lines.map((line) => {
        const points = line.values.map((value, i) => (value === null || value === undefined ? null : [x(i), y(value), i])).filter(Boolean);
        const band = line.spread && points.length > 1 && [...points.map(([px, , i]) => [px, y(line.values[i] + (line.spread[i] || 0))]), ...points.toReversed().map(([px, , i]) => [px, y(line.values[i] - (line.spread[i] || 0))])];
        return [
          band && s("polygon", { points: band.map((point) => point.join(",")).join(" "), class: `area ${line.kind}` }),
          s("polyline", { points: points.map(([px, py]) => `${px},${py}`).join(" "), class: `curve ${line.kind}` }),
          points.map(([px, py, i]) => s("circle", { cx: px, cy: py, r: labels.length > 40 ? 1.5 : 3, class: `dot ${line.kind}` }, s("title", {}, `${line.name}, ${labels[i]}: ${number(line.values[i], digits)}`))),
        ];
      })),
    lines.length > 1 && h("ul", { class: "legend" }, lines.map((line) => h("li", {}, h("i", { class: line.kind, "aria-hidden": "true" }), line.name))),
    h("details", { class: "numbers" }, h("summary", {}, "Numbers"), table(["", ...lines.map((line) => line.name)], labels.map((label, i) => [label, ...lines.map((line) => number(line.values[i], digits))]), { label: options.label })));
}
