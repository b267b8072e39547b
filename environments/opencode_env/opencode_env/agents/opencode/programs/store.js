// Takes out of OpenCode's store what could make OpenCode run, fetch or show anything but the conversation:
// store.js DATABASE SESSION DIRECTORY, run by OpenCode's own JavaScript engine. The agent can have written all of it.

import { Database } from "bun:sqlite"

const [path, session, directory] = process.argv.slice(2)
const store = new Database(path, { readwrite: true, create: false })
const quoted = (name) => `"${name.replaceAll('"', '""')}"`

store.run("PRAGMA trusted_schema = OFF")
const named = (...types) =>
  store
    .query("SELECT type, name FROM sqlite_master")
    .all()
    .filter(({ type }) => types.includes(type))
// OpenCode's own schema has neither. Of a view whose trigger is gone nothing can be changed any more.
for (const kind of ["trigger", "view"]) for (const { name } of named(kind)) store.run(`DROP ${kind} ${quoted(name)}`)

// Accounts name a server with further configuration; permissions and workspaces say what runs, and where.
const tables = named("table").map(({ name }) => name)
for (const table of ["account_state", "account", "control_account", "credential", "permission", "workspace"])
  if (tables.includes(table)) store.run(`DELETE FROM ${quoted(table)}`)
// As `opencode run` makes a session.
const permission = ["question", "plan_enter", "plan_exit"].map((name) => ({ permission: name, action: "deny", pattern: "*" }))
store
  .query("UPDATE session SET workspace_id = NULL, directory = ?, permission = ? WHERE id = ?")
  .run(directory, JSON.stringify(permission), session)
store.close()
