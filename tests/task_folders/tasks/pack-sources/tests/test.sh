#!/bin/bash
expected=$'include/add.h\nsrc/add two.c\nsrc/main.c'
found=$(tar -tzf sources.tar.gz 2>/dev/null | grep -v '/$' | sed 's#^\./##' | sort)
[ "$found" = "$expected" ] && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
