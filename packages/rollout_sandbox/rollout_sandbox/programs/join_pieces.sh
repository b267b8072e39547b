# Joins the pieces of a file when all are there and right: join_pieces.sh TARGET SHA256…
# The pieces are the files 0, 1, … in TARGET.pieces. Prints `missing=N` for each that is not there or differs: exit code 4.
target=$1
shift

checksum() {
    if command -v sha256sum >/dev/null 2>&1; then sha256sum "$1" | cut -d' ' -f1
    else python3 -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"; fi
}

number=0 missing=0
for expected in "$@"; do
    piece=$target.pieces/$number
    if [ ! -f "$piece" ] || [ "$(checksum "$piece")" != "$expected" ]; then
        printf 'missing=%s\n' "$number"
        missing=1
    fi
    number=$((number + 1))
done
[ "$missing" = 0 ] || exit 4

number=0
for expected in "$@"; do
    cat "$target.pieces/$number" && rm -f "$target.pieces/$number" || exit 1
    number=$((number + 1))
done >"$target.part.$$" && chmod 644 "$target.part.$$" && mv -f "$target.part.$$" "$target" && rm -rf "$target.pieces"
