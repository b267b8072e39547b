# apply_gold.sh DIRECTORY PATCH: applies a patch in a directory, and removes it.
cd -- "$1" || exit 1
git apply --whitespace=nowarn -- "$2" 2>/dev/null || patch -s -p1 < "$2"
result=$?
rm -f -- "$2"
exit $result
