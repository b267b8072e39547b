# Writes what has been changed in a working tree as a patch.
#
# usage: sh -c "$(cat make_patch.sh)" make-patch DIRECTORY LIST PATCH ONLY
#
# LIST names the changed paths, each ended by a NUL. With ONLY the tree is left as its commit has it.
cd -- "$1" || exit 90
list=$2 patch=$3 only=$4
command -v git >/dev/null && [ -e .git ] || exit 91
git() { command git -c safe.directory='*' -c core.hooksPath=/dev/null -c core.autocrlf=false "$@"; }
index=$(git rev-parse --git-path index) || exit
cp -- "$index" "$list.index" || exit
GIT_INDEX_FILE=$list.index git update-index --add --remove --replace -z --stdin <"$list" || exit
GIT_INDEX_FILE=$list.index git diff --cached --binary --no-color --no-ext-diff --no-textconv HEAD >"$patch" || exit
if [ -n "$only" ]; then
    xargs -0 rm -rf -- <"$list" || exit
    git reset -q --hard HEAD || exit
fi
rm -f -- "$list" "$list.index"
