# Removes the paths that a list names, each ended by a NUL.
#
# usage: sh -c "$(cat remove_files.sh)" remove-files DIRECTORY LIST
cd -- "$1" || exit 90
xargs -0 rm -rf -- <"$2" || exit
rm -f -- "$2"
