# pack_files.sh ARCHIVE KIBIBYTES PLACE...: packs the files of places, in one archive, and prints its size. Those that
# are larger, or that the agent may not read, are left out.
out=$1 most=$2; shift 2
command -v tar >/dev/null && command -v find >/dev/null || exit 90
cd / && find "$@" -type f -size "-$most"k -print0 2>/dev/null | tar --null -T - --no-recursion -cf "$out" 2>/dev/null
[ -f "$out" ] && wc -c < "$out"
