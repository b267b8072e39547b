# Says `held` when the image's own scorer ARCHIVE has this checksum, else makes DIRECTORY for an upload, readable by its
# maker only: scorer_place.sh ARCHIVE SHA256 DIRECTORY
if [ -f "$1" ] && [ "$(sha256sum "$1" 2>/dev/null | cut -d' ' -f1)" = "$2" ]; then echo held; else mkdir -m 700 -- "$3"; fi
