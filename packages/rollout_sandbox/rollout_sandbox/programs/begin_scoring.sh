# Makes the directory that scoring works in, new: a home, a temporary directory, the command run-agent-code; and removes
# the links that the agent left to what only verify commands have.
#
# usage: sh -c "$(cat begin_scoring.sh)" begin-scoring NAME HELPER DROP_LINKS TEMPORARY WORKDIR VERIFIER_DIRECTORY PLACE…
#
# Prints the directory, below the first PLACE with room for it, then why VERIFIER_DIRECTORY could not be made new, if
# so. HELPER is the text of run-agent-code, DROP_LINKS that of drop_links.sh, which goes through WORKDIR and TEMPORARY
# (empty: no directory). No link is followed: not at VERIFIER_DIRECTORY, its parent, or inside. Exit code 0: done to the
# end, whatever was possible of it.
name=$1 helper=$2 drop_links=$3 temporary=$4 workdir=$5 verifier=$6
shift 6
umask 022

made=
for base in "$@"; do
    # Not -p: the directory must be new. An agent can have taken the right to write from a directory of its own user.
    mkdir -- "$base/$name" 2>/dev/null ||
        { [ -O "$base" ] && chmod u+rwx -- "$base" && mkdir -- "$base/$name"; } 2>/dev/null || continue
    if mkdir -m 700 -- "$base/$name/home" "$base/$name/tmp" && mkdir -m 755 -- "$base/$name/bin" "$base/$name/shared"; then
        made=$base/$name
        break
    fi
done
if [ -n "$made" ] && [ -n "$helper" ]; then
    printf '%s\n' "$helper" >"$made/bin/run-agent-code" && chmod 755 -- "$made/bin/run-agent-code"
    printf '%s\n' "$drop_links" >"$made/bin/drop-links"
fi
printf '%s\n' "$made"

fresh_directory() {
    parent=${verifier%/*}
    if [ -L "$parent" ] || { [ -e "$parent" ] && [ ! -d "$parent" ]; }; then
        rm -f -- "$parent" || return 1
    fi
    mkdir -p -- "$parent" || return 1
    if [ -L "$verifier" ] || { [ -e "$verifier" ] && [ ! -d "$verifier" ]; }; then
        rm -f -- "$verifier" || return 1
    fi
    if [ -d "$verifier" ]; then
        # Without this, a user other than root cannot delete what is in a read-only directory.
        chmod -R u+rwx -- "$verifier" 2>/dev/null
        rm -rf -- "$verifier" || return 1
    fi
    # Not -p: if something appeared in between, this must fail.
    mkdir -m 700 -- "$verifier"
}
problem=$(fresh_directory 2>&1) || printf '%s\n' "${problem:-mkdir failed}"
# Only now: where a link leads into the new directory is seen when that is there.
sh -c "$drop_links" drop-links "$made/shared" "${made:-/proc}" "$verifier" "$workdir/" ${temporary:+"$temporary/"}
exit 0
