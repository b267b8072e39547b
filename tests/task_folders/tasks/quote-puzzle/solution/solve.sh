#!/bin/bash
cat >message.txt <<'EOF'
it's "quoted" and costs $5 `today`
\backslashes\ stay & so do EOF words
EOF
