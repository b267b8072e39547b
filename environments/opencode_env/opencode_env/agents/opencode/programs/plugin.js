// The OpenCode plugin of opencode-env. It owns the system prompt: nothing in it may change from day to day, and the
// texts that the environment adds come last. `plugin.json` beside this file holds {"append": string}. It marks every
// model call with a code that it finds in its environment, and with something that only this process's memory holds,
// which is closed to others: the first such mark of a code is taken for the agent's own, and the first call is made
// before the agent can have started a program. A session keeps the system prompt that it began with, whatever instructions, skills
// or repositories the agent puts where OpenCode looks for them; `begun.json` holds what one had before this process.
// With the option `task`, what a session's user said first stands at the head of every request behind a summary, and of
// every request for one, as it was when the session began, and no other words of a user stand before that summary; the
// store could hold something else by then.
// With the option `repeats` every step of a session has a key of its own, by which a model call that is tried again is
// known as the same call, and its answer reaches OpenCode whole or not at all. OpenCode's own searches print files in one
// order: ripgrep's threads find them in another one each time, and of many hits only the first are shown. It is done here,
// where the agent can change nothing, and whichever ripgrep the image brings.

import child from "node:child_process"
import { readFileSync, unlinkSync } from "node:fs"
import { basename, dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const HERE = dirname(fileURLToPath(import.meta.url))
const DATE_LINE = /^ *Today's date: .*\n?/m
const PR_SET_DUMPABLE = 4
const LIBRARIES = ["libc.so.6", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"]

function transformSystem(parts, append) {
  const kept = parts.map((part) => part.replace(DATE_LINE, ""))
  if (append) kept[kept.length - 1] = `${kept[kept.length - 1]}\n${append}`
  return kept
}

// What stands before the environment's description is the agent's own prompt; another agent has another one.
const headOf = (text) => text.split("\nYou are powered by the model named ", 1)[0]

// By session {system: [string], task: [part]}.
function takeBegun() {
  const text = take("begun.json")
  return text ? Object.entries(JSON.parse(text)) : []
}

function keepSystem(systems, session, parts) {
  const known = systems.get(session) ?? systems.set(session, []).get(session)
  const first = known.find((one) => headOf(one[0]) === headOf(parts[0]))
  if (!first) known.push(parts)
  return first ?? parts
}

// OpenCode's own words in the place of what was summarised.
const HEAD = "What did we do so far?"
const isCompaction = (part) => part.type === "compaction"
const asks = (part) => isCompaction(part) || (part.type === "text" && part.text.endsWith(HEAD))
const isShown = (part) => (part.type === "text" ? part.text && !part.ignored : part.type === "file" && part.url.startsWith("data:image/"))
const saysTask = (message, task) => {
  const shown = message.parts.filter(isShown).map((part) => part.text ?? part.url)
  return message.info.role === "user" && JSON.stringify(shown) === JSON.stringify(task.map((part) => part.text ?? part.url))
}

// A message of one text stays one: not every endpoint takes several texts.
function withTask(tasks, session, messages, summarised) {
  const [first] = messages
  const whole = first.info.role === "user" && !first.parts.some(isCompaction)
  if (whole && !summarised && !tasks.has(session)) tasks.set(session, first.parts.filter(isShown))
  const task = tasks.get(session)
  if (!task) return messages
  if (summarised) return saysTask(first, task) ? messages : [{ info: { ...first.info, role: "user" }, parts: task }, ...messages]
  const behind = messages.findIndex(({ info }) => info.role !== "user")
  const heads = messages.slice(whole && saysTask(first, task) ? 1 : 0, Math.max(behind, 0))
  if (!heads.some(({ parts }) => parts.some(asks))) return messages
  const question = heads.flatMap(({ parts }) => parts.filter(isCompaction))
  const joined = task.length === 1 ? [{ ...task[0], text: `${task[0].text}\n\n${HEAD}` }] : [...task, ...question]
  return [{ info: first.info, parts: joined }, ...messages.slice(behind)]
}

async function lastMessage(client, sessionID, wanted) {
  const { data } = await client.session.messages({ path: { id: sessionID } })
  return data?.findLast(({ info }) => wanted(info))
}

async function lastSummary(client, sessionID) {
  const made = await lastMessage(client, sessionID, (info) => info.role === "assistant" && info.summary && info.finish && !info.error)
  return made ? [{ info: { ...made.info, role: "user" }, parts: [{ type: "text", text: HEAD }] }, made] : []
}

async function closeMemory() {
  for (const library of LIBRARIES) {
    try {
      const { dlopen } = await import("bun:ffi")
      const { symbols } = dlopen(library, { prctl: { args: ["i32", "u64", "u64", "u64", "u64"], returns: "i32" } })
      return symbols.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) === 0
    } catch {}
  }
  return false
}

function take(name) {
  const file = join(HERE, name)
  try {
    const text = readFileSync(file, "utf8")
    unlinkSync(file)
    return text
  } catch {
    return ""
  }
}

// OpenCode runs a tool as soon as the event with its call is there, and runs it again when the rest of that answer is
// lost and the call is tried again. So what may hold an event waits for the end of the answer; only the keep-alives
// before it pass, by which OpenCode knows that the connection lives.
const KEEP_ALIVE = /^[: a-z\n]*$/

function wholeOrNothing(response) {
  const { status, statusText, headers } = response
  const held = []
  const waiting = new TransformStream({
    transform(chunk, output) {
      if (held.length === 0 && KEEP_ALIVE.test(Buffer.from(chunk).toString("latin1"))) output.enqueue(chunk)
      else held.push(chunk)
    },
    flush(output) {
      for (const chunk of held) output.enqueue(chunk)
    },
  })
  return new Response(response.body.pipeThrough(waiting), { status, statusText, headers })
}

const ask = globalThis.fetch
const askWhole = async (input, init) => {
  const response = await ask(input, init)
  const repeatable = response.body && new Headers(init?.headers).has("Idempotency-Key")
  return repeatable ? wholeOrNothing(response) : response
}
globalThis.fetch = Object.assign(askWhole, ask)

// Only OpenCode's searches begin with this option; the agent's commands are a shell's.
let sorting = false

function sortSearches() {
  if (sorting) return
  sorting = true
  const { spawn } = child
  const isSearch = (command, args) => basename(String(command)) === "rg" && args?.[0] === "--no-config"
  child.spawn = (command, args, ...rest) =>
    spawn(command, isSearch(command, args) ? ["--no-config", "--sort=path", ...args.slice(1)] : args, ...rest)
}

// The settings of this process's engine (launch.sh) are not for the programs that the agent starts.
for (const name of Object.keys(process.env)) if (/^BUN_(JSC|RUNTIME)_/.test(name)) delete process.env[name]

// With this message a session is let go on from a turn of it that was kept. It says nothing: what is stored of it is the
// user's last message, as that was. A message of its own would change what OpenCode summarises, and what it keeps.
const MARKER = "opencode-env: go on"
const isMarker = (parts) => parts.some((part) => part.type === "text" && part.text.trim() === MARKER)

// OpenCode may start a plugin more than once.
await closeMemory()
const CODE = process.env.OPENCODE_ENV_CODE
delete process.env.OPENCODE_ENV_CODE
const MARK = CODE && `${CODE}:${crypto.randomUUID()}`
const BEGUN = takeBegun()
const SYSTEMS = new Map(BEGUN.map(([session, { system }]) => [session, [system]]))
const TASKS = new Map(BEGUN.flatMap(([session, { task }]) => (task.length ? [[session, task]] : [])))

async function server({ client }, options) {
  const keys = new Map()
  const summarised = new Map()
  sortSearches()
  const { append } = JSON.parse(readFileSync(join(HERE, "plugin.json"), "utf8"))
  return {
    "experimental.chat.system.transform": async ({ sessionID }, output) => {
      const transformed = transformSystem(output.system, append)
      const kept = sessionID ? keepSystem(SYSTEMS, sessionID, transformed) : transformed
      output.system.splice(0, output.system.length, ...kept)
    },
    "chat.message": async ({ sessionID }, { message, parts }) => {
      if (!isMarker(parts)) return
      parts.splice(0)
      const last = await lastMessage(client, sessionID, ({ role }) => role === "user")
      const { agent, model } = message
      Object.assign(message, last?.info, { agent, model })
    },
    // Called once for a step of a session; the headers are asked for on every try of it.
    "experimental.chat.messages.transform": async (_input, output) => {
      const session = output.messages[0]?.info.sessionID
      const earlier = summarised.get(session)
      summarised.delete(session)
      const whole = [...(earlier ?? []), ...output.messages]
      output.messages.splice(0, output.messages.length, ...(options?.task && session ? withTask(TASKS, session, whole, !!earlier) : whole))
      if (session && options?.repeats) keys.set(session, crypto.randomUUID())
    },
    // The messages that are asked for next are those that a summary is made of. OpenCode gives the summary before to
    // its own words only.
    "experimental.session.compacting": async ({ sessionID }, output) => {
      summarised.set(sessionID, options?.summary ? await lastSummary(client, sessionID) : [])
      if (options?.summary) output.prompt = options.summary
    },
    // Commands of the agent have their own home, and git as it is; OpenCode itself started without both.
    "shell.env": async (_input, output) => {
      delete process.env.GIT_ALLOW_PROTOCOL
      delete process.env.GIT_NO_LAZY_FETCH
      output.env.HOME = join(HERE, "home")
    },
    "chat.headers": async ({ sessionID, agent }, output) => {
      if (MARK) output.headers["X-Agent-Mark"] = MARK
      const key = keys.get(sessionID)
      if (key) output.headers["Idempotency-Key"] = `${key}:${encodeURIComponent(agent)}`
    },
  }
}

// OpenCode calls every other export as a plugin of its own, so there is only this one.
export default { id: "opencode-env", server }
