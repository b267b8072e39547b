# Prints what decides the build and what is there already, one `key=value` a line: probe.sh ASSET_DIR VERSION
printf 'machine=%s\n' "$(uname -m)"
if ls /lib/ld-musl-* >/dev/null 2>&1; then echo libc=musl; else echo libc=glibc; fi
while IFS= read -r line; do
    case $line in flags*) printf 'flags=%s\n' "${line#*:}"; break ;; esac
done </proc/cpuinfo
for directory in "$1"/*; do
    if [ -x "$directory/opencode" ] && [ -f "$directory/complete.json" ]; then printf 'ready=%s\n' "$directory"; fi
done
if [ -x "$1/opencode" ]; then printf 'found=%s\n' "$1/opencode"; else printf 'found=%s\n' "$(command -v opencode)"; fi
printf 'rg=%s\n' "$(command -v rg)"
