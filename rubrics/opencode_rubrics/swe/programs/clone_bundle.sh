# clone_bundle.sh BUNDLE DIRECTORY [COMMIT]: makes a repository of a bundle, which it removes, and checks a commit out.
set -e
cd -- "$2"
trap 'rm -f "$1"' EXIT
git init -q .
git fetch -q "$1" "+refs/*:refs/bundle/*"
git checkout -q --detach "${3:-FETCH_HEAD}"
