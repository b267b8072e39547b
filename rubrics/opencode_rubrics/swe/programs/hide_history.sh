# Leaves of a repository what leads to the commit that is checked out, and nothing that could tell of another; of its
# submodules, and of whatever other repository stands below, too.
#
# usage: sh -c "$(cat hide_history.sh)" hide-history DIRECTORY COMMIT
#
# Exit code 0: done, or there is no repository. COMMIT, if not empty, is checked out first where HEAD is another.
cd -- "$1" || exit 90
[ -n "$(find . -name .git -print -quit)" ] || exit 0
command -v git >/dev/null || exit 91
git() { command git -c safe.directory='*' -c core.hooksPath=/dev/null -c gc.auto=0 -c advice.detachedHead=false "$@"; }
set -e
if [ -e .git ] && [ -n "$2" ] && [ "$(git rev-parse HEAD)" != "$(git rev-parse "$2^{commit}")" ]; then
    git checkout -q -f "$2"
fi

hide() {
    directory=$(git rev-parse --absolute-git-dir)
    head=$(git rev-parse -q --verify HEAD) || return 0
    git checkout -q --detach "$head"
    for remote in $(git remote); do git remote remove "$remote"; done
    git for-each-ref --format='delete %(refname)' | git update-ref --no-deref --stdin
    git worktree prune
    rm -rf "$directory/logs" "$directory/refs/original" "$directory/refs/stash" "$directory/worktrees" "$directory/lfs"
    find "$directory" -maxdepth 1 -name '*_HEAD' -exec rm -f {} +
    rm -f "$directory/packed-refs" "$directory/shallow.lock" "$directory/gc.log" "$directory/description"
    rm -f "$directory/objects/info/commit-graph" && rm -rf "$directory/objects/info/commit-graphs"
    # Objects that another repository lends are made its own first.
    git repack -q -a -d
    rm -f "$directory/objects/info/alternates"
    git prune --expire=now
    git checkout -q -B work "$head"
    rm -rf "$directory/logs"
    find "$directory" -maxdepth 1 -name '*_HEAD' -exec rm -f {} +
}

root=$(pwd -P)
# Repositories of submodules that are not checked out tell of other commits, and serve nobody.
if [ -d .git/modules ]; then
    find .git/modules -name config | while IFS= read -r config; do
        module=${config%/config}
        tree=$(git config --file "$config" core.worktree || echo none)
        [ ! -f "$module/HEAD" ] || [ -e "$module/$tree/.git" ] || rm -rf "$module"
    done
fi
find . -name .git -print -prune | while IFS= read -r place; do
    cd -- "$root/${place%/.git}"
    # Whatever else has the name is not a repository; at the top it must be one.
    if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ]; then
        hide
    elif [ "$place" = ./.git ]; then
        exit 92
    fi
done
