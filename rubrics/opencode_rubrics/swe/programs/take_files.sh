# Packs the files that a list names, one below the other, in a gzipped tar archive of bounded size.
#
# usage: sh -c "$(cat take_files.sh)" take-files DIRECTORY LIST ARCHIVE MAX_BYTES
cd -- "$1" || exit 90
tar -cf - -T "$2" 2>/dev/null | head -c "$4" | gzip -1 >"$3"
rm -f -- "$2"
