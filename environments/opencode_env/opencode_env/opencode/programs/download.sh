# Fetches the release archive inside the sandbox, checks the program in it and puts it in place:
# download.sh URL SHA256 DIRECTORY. Five tries, 1/2/4/8 s apart; a file whose checksum differs is never kept.
url=$1 expected=$2 directory=$3
scratch=$directory.part.$$
mkdir -p "$scratch" || exit 1
trap 'rm -rf "$scratch"' EXIT

fetch() {
    if command -v curl >/dev/null 2>&1; then curl -fsSL --connect-timeout 20 -o "$1" "$url"
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

delay=1 reason=
for attempt in 1 2 3 4 5; do
    if fetch "$scratch/archive.tar.gz" && tar -xzf "$scratch/archive.tar.gz" -C "$scratch" opencode; then
        actual=$(checksum "$scratch/opencode")
        if [ "$actual" = "$expected" ]; then
            chmod 755 "$scratch/opencode" && mkdir -p "$directory" && mv -f "$scratch/opencode" "$directory/opencode"
            exit $?
        fi
        reason="SHA-256 of the program is $actual, expected $expected"
    else reason="download or unpacking failed"; fi
    rm -f "$scratch/archive.tar.gz" "$scratch/opencode"
    [ "$attempt" = 5 ] || { sleep "$delay"; delay=$((delay * 2)); }
done
echo "$url: $reason" >&2
exit 1
