# Prints, of the paths that a list names, each ended by a NUL, those that a repository ignores.
#
# usage: sh -c "$(cat ignored_paths.sh)" ignored-paths DIRECTORY LIST
cd -- "$1" && command -v git >/dev/null && git -c safe.directory='*' check-ignore -z --stdin --no-index <"$2"
rm -f -- "$2"
