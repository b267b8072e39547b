#!/bin/bash
cd project && find . -name '*.[ch]' -print0 | LC_ALL=C sort -z | tar --null -T - -czf ../sources.tar.gz
