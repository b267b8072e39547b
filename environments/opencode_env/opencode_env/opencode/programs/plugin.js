// The OpenCode plugin of opencode-env. It owns the system prompt: nothing in it may change from day to day, and the
// texts that the environment adds come last. `plugin.json` beside this file holds {"append": string}. It marks every
// model call with what the file `mark` held: the file is gone, and this process's memory closed to others, before the
// agent can have started a program. Every step of a session has a key of its own, by which a model call that is tried
// again is known as the same call.

import { readFileSync, unlinkSync } from "node:fs"
import { dirname, join } from "node:path"
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

function takeMark() {
  const file = join(HERE, "mark")
  try {
    const mark = readFileSync(file, "utf8")
    unlinkSync(file)
    return mark
  } catch {
    return ""
  }
}

// OpenCode may start a plugin more than once.
await closeMemory()
const MARK = takeMark()

async function server() {
  const keys = new Map()
  const { append } = JSON.parse(readFileSync(join(HERE, "plugin.json"), "utf8"))
  return {
    "experimental.chat.system.transform": async (_input, output) => {
      const transformed = transformSystem(output.system, append)
      output.system.splice(0, output.system.length, ...transformed)
    },
    // Called once for a step of a session; the headers are asked for on every try of it.
    "experimental.chat.messages.transform": async (_input, output) => {
      const session = output.messages[0]?.info.sessionID
      if (session) keys.set(session, crypto.randomUUID())
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
