# Leaves of a repository what leads to the commit that is checked out, and what its index holds; of its submodules, and
# of whatever other repository stands below, too. Each gets a new directory `.git` with a pack of these objects alone:
# whatever else git or its like has put into the old one goes with that, wherever it stood.
#
# usage: sh -c "$(cat hide_history.sh)" hide-history DIRECTORY COMMIT
#
# Exit code 0: done, or there is no repository. COMMIT, if not empty, is checked out first where HEAD is another.
cd -- "$1" || exit 90
[ -n "$(find . -name .git -print -quit)" ] || exit 0
command -v git >/dev/null || exit 91
unset $(git rev-parse --local-env-vars)
export GIT_GRAFT_FILE=/dev/null GIT_NO_REPLACE_OBJECTS=1 GIT_DEFAULT_REF_FORMAT=files
git() {
    command git -c safe.directory='*' -c core.hooksPath=/dev/null -c gc.auto=0 -c advice.detachedHead=false \
        -c advice.graftFileDeprecated=false "$@"
}
set -e
if [ -e .git ] && [ -n "$2" ] && [ "$(git rev-parse -q --verify HEAD)" != "$(git rev-parse "$2^{commit}")" ]; then
    git checkout -q -f "$2"
fi

owner_of() {
    set -- $(ls -ldn "$1")
    echo "$3:$4"
}

# Makes .git.new of the repository that is checked out here.
rebuild() {
    old=$(git rev-parse --absolute-git-dir)
    common=$(cd -- "$(git rev-parse --git-common-dir)" && pwd -P)
    new=$(pwd -P)/.git.new
    format=$(git config extensions.objectFormat || echo sha1)
    rm -rf "$new"
    git init -q --bare --template= $([ "$format" = sha1 ] || echo "--object-format=$format") "$new"
    # The new one walks what the old one has: it knows of no remote, so that nothing of a partial clone is fetched.
    echo "$common/objects" >"$new/objects/info/alternates"
    [ ! -f "$common/shallow" ] || cp -- "$common/shallow" "$new/shallow"
    head=$(git rev-parse -q --verify 'HEAD^{commit}') || head=
    [ -z "$head" ] || echo "$head" >"$new/wanted"
    if [ -f "$old/index" ]; then
        cp -- "$old/index" "$new/index"
        # Whole, in one file, and without what it remembers of conflicts that were resolved.
        GIT_INDEX_FILE=$new/index git -c core.splitIndex=false -c index.sparse=false -c core.untrackedCache=false \
            -c core.fsmonitor=false update-index --no-split-index --clear-resolve-undo --force-write-index 2>/dev/null
        GIT_INDEX_FILE=$new/index git ls-files --stage |
            sed -n '/^160000/!s/^[0-9]* \([0-9a-f]*\) .*/\1/p' >>"$new/wanted"
    fi
    if [ -s "$new/wanted" ]; then
        git --git-dir="$new" cat-file --batch-check='%(objectname) there' <"$new/wanted" | sed -n 's/ there$//p' |
            git --git-dir="$new" rev-list --objects --missing=allow-any --stdin >"$new/led-to"
        git --git-dir="$new" pack-objects -q --delta-base-offset --non-empty "$new/objects/pack/pack" \
            <"$new/led-to" >/dev/null
        [ ! -f "$new/shallow" ] || grep -F -f "$new/shallow" "$new/led-to" >"$new/shallow.kept" || true
        [ ! -f "$new/shallow" ] || mv "$new/shallow.kept" "$new/shallow"
    fi
    rm -f "$new/wanted" "$new/led-to" "$new/objects/info/alternates"
    cat "$common/config" >"$new/config"
    [ ! -f "$old/config.worktree" ] || cat "$old/config.worktree" >>"$new/config"
    configure() { git config --file "$new/config" "$@"; }
    configure --name-only --get-regexp '^(remote|branch)\.' | sed 's/\.[^.]*$//' | sort -u | while IFS= read -r part; do
        configure --remove-section "$part"
    done
    for name in core.worktree extensions.worktreeConfig extensions.partialClone extensions.refStorage; do
        configure --unset-all "$name" || true
    done
    configure core.bare false
    mkdir -p "$new/info"
    for kept in "$common/info/exclude" "$common/info/attributes" "$old/info/sparse-checkout"; do
        [ ! -f "$kept" ] || cp -- "$kept" "$new/info/"
    done
    [ ! -d "$common/hooks" ] || cp -R -- "$common/hooks" "$new/hooks"
    [ -z "$head" ] || git --git-dir="$new" update-ref refs/heads/work "$head"
    git --git-dir="$new" symbolic-ref HEAD refs/heads/work
    rm -rf "$new/logs"
    [ "$(id -u)" != 0 ] || chown -R "$(owner_of .git)" "$new"
    printf '%s\0%s\0' "$old" "$common" >>"$gone"
}

root=$(pwd -P)
gone=$(mktemp)
find . -name .git.new -prune -o -name .git -print -prune | while IFS= read -r place; do
    cd -- "$root/${place%/.git}"
    # Whatever else has the name is not a repository; at the top it must be one.
    if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ]; then
        rebuild
    elif [ "$place" = ./.git ]; then
        exit 92
    elif [ -d .git/objects ]; then
        rm -rf .git
    fi
done
# Only now: that of a submodule stands in its superproject's.
xargs -0 rm -rf -- <"$gone"
rm -f -- "$gone"
find . -name .git.new -print -prune | while IFS= read -r new; do
    rm -rf -- "${new%.new}"
    mv -- "$new" "${new%.new}"
done
