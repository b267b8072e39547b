# Unpacks an archive of programs into a directory, the file that marks it complete last: unpack.sh ARCHIVE DIRECTORY
scratch=$2.part.$$
mkdir -p "$scratch" "$2" && tar -xzf "$1" -C "$scratch" || { rm -rf "$scratch"; exit 1; }
for name in rg opencode complete.json; do mv -f "$scratch/$name" "$2/$name" || exit 1; done
rm -rf "$scratch" "$1"
