# Puts a change into a directory: removes paths, makes directories, unpacks an archive; whatever stands in the way goes.
#
# usage: sh -c "$(cat put_files.sh)" put-files DIRECTORY PLACE
#
# PLACE.removed, PLACE.writable (directories of what is removed or put there) and PLACE.folders name paths, each ended by
# a NUL; PLACE.tgz holds the files. All four are removed.
cd -- "$1" || exit 90
trap 'rm -f -- "$2.removed" "$2.writable" "$2.folders" "$2.tgz"' EXIT
umask 022
# A user other than root cannot change what is in a read-only directory.
[ -w . ] || chmod u+rwx . || exit
xargs -0 sh -c 'for at; do
    [ -L "$at" ] || [ ! -d "$at" ] || [ -w "$at" ] || chmod u+rwx -- "$at" || exit
done' writable <"$2.writable" || exit
xargs -0 rm -rf -- <"$2.removed" || exit
xargs -0 sh -c 'for at; do
    [ ! -L "$at" ] && [ -d "$at" ] || { rm -rf -- "$at" && mkdir -- "$at"; } || exit
done' folders <"$2.folders" || exit
[ ! -s "$2.tgz" ] || tar -xzf "$2.tgz"
