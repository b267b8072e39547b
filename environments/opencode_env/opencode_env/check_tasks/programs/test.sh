#!/bin/bash
# Puts the tests back as they were, runs the suite, and reads its log.
here=/tests
mkdir -p /logs/verifier
echo 0 > /logs/verifier/reward.txt
cd "@workdir@" || exit 1
while IFS= read -r path; do rm -rf -- "$path"; done < $here/paths.txt
cp -a $here/files/. . || exit 1
[ ! -f $here/hidden.tgz ] || tar -xzf $here/hidden.tgz -C / || exit 1
[ ! -f $here/make_change.sh ] || sh $here/make_change.sh || exit 1
bash $here/suite.sh > /logs/verifier/suite.log 2>&1 < /dev/null
python3 $here/verdict.py $? /logs/verifier/suite.log > /logs/verifier/reward.txt
