// The OpenCode plugin of opencode-env. It owns the system prompt: nothing in it may change from day to day, and the
// texts that the environment adds come last. `plugin.json` beside this file holds {"append": string}.

import { readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const DATE_LINE = /^ *Today's date: .*\n?/m

function transformSystem(parts, append) {
  const kept = parts.map((part) => part.replace(DATE_LINE, ""))
  if (append) kept[kept.length - 1] = `${kept[kept.length - 1]}\n${append}`
  return kept
}

async function server() {
  const file = join(dirname(fileURLToPath(import.meta.url)), "plugin.json")
  const { append } = JSON.parse(readFileSync(file, "utf8"))
  return {
    "experimental.chat.system.transform": async (_input, output) => {
      const transformed = transformSystem(output.system, append)
      output.system.splice(0, output.system.length, ...transformed)
    },
  }
}

// OpenCode calls every other export as a plugin of its own, so there is only this one.
export default { id: "opencode-env", server }
