# Fetches programs inside the sandbox, each from a gzipped tar archive, checks them and puts them in place together:
# download.sh DIRECTORY JITTER (NAME URL SHA256 MEMBER)…
# Five tries for each, 1/2/4/8 s apart, lengthened by JITTER thousandths; a program whose checksum differs is never kept.
# `complete.json` in DIRECTORY names the checksums and is written last. Prints seconds by stage, and the bytes fetched.
directory=$1 jitter=$2
shift 2
scratch=$directory.part.$$
mkdir -p "$scratch" || exit 1
trap 'rm -rf "$scratch"' EXIT

fetch() {
    if command -v curl >/dev/null 2>&1; then
        curl -fsSL --connect-timeout 20 --speed-limit 1024 --speed-time 60 -o "$1" "$url"
    elif command -v wget >/dev/null 2>&1; then wget -q -T 60 -O "$1" "$url"
    elif python3 -c 'import shutil, urllib.request' >/dev/null 2>&1; then # a minimal Python has neither
        python3 -c 'import shutil, sys, urllib.request as u
with u.urlopen(sys.argv[1], timeout=60) as r, open(sys.argv[2], "wb") as f: shutil.copyfileobj(r, f)' "$url" "$1"
    else echo "no downloader in the image: it needs curl, wget or python3" >&2; exit 3; fi
}

checksum() {
    if command -v sha256sum >/dev/null 2>&1; then sha256sum "$1" | cut -d' ' -f1
    else python3 -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"; fi
}

now() { # hundredths of a second, in `clock`; the 1 keeps a leading zero from meaning an octal number
    read -r clock _ </proc/uptime
    clock=$((${clock%.*} * 100 + 1${clock#*.} - 100))
}

pause() { # seconds
    thousandths=$(($1 * (1000 + jitter)))
    rest=$((thousandths % 1000))
    if [ "$rest" = 0 ]; then sleep "$((thousandths / 1000))"; else sleep "$((thousandths / 1000)).$(printf %03d "$rest")"; fi
}

downloading=0 unpacking=0 verifying=0 bytes=0 sums=
obtain() { # NAME URL SHA256 MEMBER
    name=$1 url=$2 expected=$3 member=$4 delay=1 reason=
    for attempt in 1 2 3 4 5; do
        now; begun=$clock unpacked=1
        fetch "$scratch/archive.tar.gz"; fetched=$?
        now; downloading=$((downloading + clock - begun)) begun=$clock
        [ "$fetched" = 0 ] && tar -xzf "$scratch/archive.tar.gz" -C "$scratch" "$member" && unpacked=0
        now; unpacking=$((unpacking + clock - begun)) begun=$clock
        if [ "$unpacked" = 0 ]; then
            actual=$(checksum "$scratch/$member")
            now; verifying=$((verifying + clock - begun))
            if [ "$actual" = "$expected" ]; then
                bytes=$((bytes + $(wc -c <"$scratch/archive.tar.gz" 2>/dev/null || echo 0)))
                rm -f "$scratch/archive.tar.gz"
                chmod 755 "$scratch/$member" && mv -f "$scratch/$member" "$scratch/.$name"
                return
            fi
            reason="SHA-256 of the program is $actual, expected $expected"
        else reason="download or unpacking failed"; fi
        rm -f "$scratch/archive.tar.gz" "$scratch/$member"
        [ "$attempt" = 5 ] || { pause "$delay"; delay=$((delay * 2)); }
    done
    echo "$url: $reason" >&2
    return 1
}

names=
while [ "$#" -gt 0 ]; do
    obtain "$1" "$2" "$3" "$4" || exit 1
    names="$names $1" sums="$sums${sums:+, }\"$1\": \"$3\""
    shift 4
done
printf '{%s}' "$sums" >"$scratch/complete.json"
mkdir -p "$directory" || exit 1
for name in $names; do mv -f "$scratch/.$name" "$directory/$name" || exit 1; done
mv -f "$scratch/complete.json" "$directory/complete.json" || exit 1
for stage in "download $downloading" "unpack $unpacking" "verify $verifying"; do
    printf '%s=%d.%02d\n' "${stage% *}" "$((${stage#* } / 100))" "$((${stage#* } % 100))"
done
printf 'bytes=%d\n' "$bytes"
