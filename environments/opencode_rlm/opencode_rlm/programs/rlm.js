// Recursion for OpenCode, one file with two uses: loaded by OpenCode it is the plugin that marks every model call with
// its role and offers the tool `llm_subcall`; run by the `llm` command it calls sub-LLMs from the agent's programs.
// `rlm.json` beside it holds {endpoint, secret, model, parallel, output, description}.

import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { fileURLToPath } from "node:url"

const HERE = dirname(fileURLToPath(import.meta.url))
const MAX_FILE_BYTES = 64 * 1024 * 1024
const RETRIED = [429, 500, 502, 503]
const RETRY_DELAYS_MS = [500, 2000]
const MAX_RETRY_AFTER_MS = 30_000

// ---- one sub-LLM call ----

export function withFiles(prompt, files, directory) {
  const parts = files.map((name) => {
    const path = resolve(directory, name)
    const found = statSync(path)
    if (!found.isFile()) throw new Error(`${path} is not a file`)
    if (found.size > MAX_FILE_BYTES) throw new Error(`${path} is larger than ${MAX_FILE_BYTES} bytes`)
    return `<file path="${path}">\n${readFileSync(path, "utf8")}\n</file>`
  })
  return [prompt, ...parts].join("\n\n")
}

// The text of an OpenAI-style event stream.
export function textOfStream(stream) {
  let text = ""
  for (const line of stream.split("\n")) {
    if (!line.startsWith("data:")) continue
    const data = line.slice(5).trim()
    if (data === "[DONE]") break
    const event = JSON.parse(data)
    if (event.error) throw new Error(event.error.message ?? String(event.error))
    text += event.choices?.[0]?.delta?.content ?? ""
  }
  return text
}

async function refusal(response) {
  const body = await response.text()
  let message = body.slice(0, 500)
  try {
    message = JSON.parse(body).error?.message ?? message
  } catch {}
  return new Error(`${response.status}: ${message}`)
}

function pause(ms, signal) {
  return new Promise((done, fail) => {
    const timer = setTimeout(done, ms)
    signal?.addEventListener("abort", () => (clearTimeout(timer), fail(signal.reason)), { once: true })
  })
}

// Streamed, so that a long answer is kept alive on the way; the key lets the server recognise a repeated call.
async function ask(settings, item, directory, signal) {
  const messages = item.system ? [{ role: "system", content: item.system }] : []
  messages.push({ role: "user", content: withFiles(item.prompt, item.files ?? [], directory) })
  const request = {
    method: "POST",
    headers: {
      authorization: `Bearer ${settings.secret}`,
      "content-type": "application/json",
      "idempotency-key": crypto.randomUUID(),
      "x-rlm-role": "sub",
    },
    body: JSON.stringify({
      model: settings.model,
      messages,
      stream: true,
      stream_options: { include_usage: true },
    }),
    signal,
    timeout: false,
  }
  for (let attempt = 0; ; attempt++) {
    let wait = RETRY_DELAYS_MS[attempt]
    try {
      const response = await fetch(`${settings.endpoint}/chat/completions`, request)
      if (response.ok) return textOfStream(await response.text())
      const error = await refusal(response)
      if (wait === undefined || !RETRIED.includes(response.status)) throw Object.assign(error, { final: true })
      const after = Number(response.headers.get("retry-after"))
      if (after > 0) wait = Math.min(after * 1000, MAX_RETRY_AFTER_MS)
    } catch (error) {
      const connection = error.code !== undefined && error.name !== "AbortError"
      if (error.final || !connection || wait === undefined) throw error
    }
    await pause(wait, signal)
  }
}

// ---- many of them ----

// Results in the order of `items`, each {answer} or {error}; `each` is called with them in that order.
export async function askAll(settings, items, { directory, signal, each } = {}) {
  const results = new Array(items.length)
  let next = 0
  let told = 0
  const worker = async () => {
    while (next < items.length) {
      const index = next++
      try {
        results[index] = { answer: await ask(settings, items[index], directory ?? process.cwd(), signal) }
      } catch (error) {
        if (signal?.aborted) throw error
        results[index] = { error: error.message ?? String(error) }
      }
      for (; results[told]; told++) each?.(results[told])
    }
  }
  await Promise.all(Array.from({ length: Math.min(settings.parallel, items.length) }, worker))
  return results
}

// The answers as one text of at most `limit` characters; when they are longer, `keep` stores the whole text and names
// its file, and every answer is cut to an equal share.
export function render(results, limit, keep) {
  const shown = (result, cut) => {
    const text = result.error === undefined ? result.answer : `error: ${result.error}`
    return text.length > cut ? `${text.slice(0, cut)} [… ${text.length - cut} more characters]` : text
  }
  const join = (cut) =>
    results.length === 1
      ? shown(results[0], cut)
      : results.map((result, index) => `[${index + 1}] ${shown(result, cut)}`).join("\n\n")
  const whole = join(Infinity)
  if (whole.length <= limit) return whole
  const note = `\n\n(All ${whole.length} characters are in ${keep(whole)})`
  const share = Math.floor((limit - note.length) / results.length) - 48
  return join(Math.max(share, 0)).slice(0, Math.max(limit - note.length, 0)) + note
}

function keepIn(directory) {
  return (text) => {
    mkdirSync(directory, { recursive: true })
    for (let number = 1; ; number++) {
      const path = join(directory, `${number}.txt`)
      try {
        writeFileSync(path, text, { flag: "wx" })
        return path
      } catch (error) {
        if (error.code !== "EEXIST") throw error
      }
    }
  }
}

// ---- the plugin ----

const text = { type: "string" }
const texts = { type: "array", items: text }
const ARGS = {
  prompt: { ...text, description: "One prompt" },
  prompts: { ...texts, description: "Several prompts, answered at the same time and in order" },
  files: { ...texts, description: "Paths of files to append to every prompt" },
  per_file: { type: "boolean", description: "Ask once for each file, with only that file appended" },
  system: { ...text, description: "System prompt of the sub-LLM" },
}

export function itemsOf(args) {
  const prompts = [...(args.prompt ? [args.prompt] : []), ...(args.prompts ?? [])]
  if (prompts.length === 0) throw new Error("llm_subcall needs `prompt` or `prompts`")
  const files = args.files ?? []
  const sets = args.per_file && files.length > 0 ? files.map((file) => [file]) : [files]
  return prompts.flatMap((prompt) => sets.map((set) => ({ prompt, files: set, system: args.system })))
}

export function readSettings() {
  return JSON.parse(readFileSync(join(HERE, "rlm.json"), "utf8"))
}

async function server({ client, directory }) {
  const settings = readSettings()
  const depths = new Map()
  const depthOf = async (id) => {
    if (!depths.has(id)) {
      const { data } = await client.session.get({ path: { id } })
      if (!data) throw new Error(`rlm.js: unknown session ${id}`)
      depths.set(id, data.parentID ? (await depthOf(data.parentID)) + 1 : 0)
    }
    return depths.get(id)
  }
  return {
    event: async ({ event }) => {
      if (event.type !== "session.created") return
      const { id, parentID } = event.properties.info
      if (!parentID) depths.set(id, 0)
      else if (depths.has(parentID)) depths.set(id, depths.get(parentID) + 1)
    },
    "chat.headers": async ({ sessionID }, output) => {
      const depth = await depthOf(sessionID)
      output.headers["X-RLM-Role"] = depth === 0 ? "main" : "sub"
      if (depth > 0) output.headers["X-RLM-Depth"] = String(depth)
    },
    tool: {
      llm_subcall: {
        description: settings.description,
        args: ARGS,
        execute: async (args, context) => {
          const options = { directory: context.directory ?? directory, signal: context.abort }
          const results = await askAll(settings, itemsOf(args), options)
          return render(results, settings.output, keepIn(join(HERE, "answers")))
        },
      },
    },
    "tool.definition": async ({ toolID }, output) => {
      if (toolID === "llm_subcall") output.jsonSchema = { type: "object", properties: ARGS, additionalProperties: false }
    },
  }
}

export default { id: "opencode-rlm", server }

// ---- the command ----

const HELP = `usage: llm [-s SYSTEM] [-f FILE]... [PROMPT]     answer one prompt; without PROMPT it is read from stdin
       llm --batch [-s SYSTEM] [-f FILE]... <LINES   answer JSON lines, each a string or {"prompt", "files", "system"};
                                                     prints {"answer"} or {"error"} per line, in order
exit code: 0 all answered, 1 a call failed, 2 wrong use`

export function parseArguments(argv) {
  const options = { batch: false, files: [], words: [], system: undefined }
  for (let index = 0; index < argv.length; index++) {
    const word = argv[index]
    const value = () => {
      if (++index >= argv.length) throw new Error(`${word} needs a value`)
      return argv[index]
    }
    if (word === "--batch") options.batch = true
    else if (word === "-s" || word === "--system") options.system = value()
    else if (word === "-f" || word === "--file") options.files.push(value())
    else if (word === "--") return { ...options, words: [...options.words, ...argv.slice(index + 1)] }
    else if (word.startsWith("-") && word !== "-") throw new Error(`unknown option ${word}`)
    else options.words.push(word)
  }
  return options
}

export function batchItems(lines, options) {
  return lines.split("\n").flatMap((line, index) => {
    if (!line.trim()) return []
    let item
    try {
      item = JSON.parse(line)
    } catch {
      throw new Error(`line ${index + 1} is not JSON`)
    }
    if (typeof item === "string") item = { prompt: item }
    if (typeof item?.prompt !== "string") throw new Error(`line ${index + 1} has no prompt`)
    return [{ system: options.system, ...item, files: [...options.files, ...(item.files ?? [])] }]
  })
}

async function main(argv) {
  if (argv.includes("-h") || argv.includes("--help")) return console.log(HELP), 0
  let items, options
  try {
    options = parseArguments(argv)
    const given = options.words.join(" ")
    if (options.batch && given) throw new Error("--batch reads its prompts from stdin")
    const input = given || readFileSync(0, "utf8")
    items = options.batch ? batchItems(input, options) : [{ ...options, prompt: input }]
    if (!options.batch && !input.trim()) throw new Error("no prompt")
  } catch (error) {
    console.error(`llm: ${error.message}\n${HELP}`)
    return 2
  }
  const each = options.batch ? (result) => console.log(JSON.stringify(result)) : undefined
  const results = await askAll(readSettings(), items, { each })
  const failed = results.filter((result) => result.error !== undefined)
  if (!options.batch && failed.length === 0) console.log(results[0].answer)
  if (!options.batch) for (const result of failed) console.error(`llm: ${result.error}`)
  return failed.length > 0 ? 1 : 0
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2))
